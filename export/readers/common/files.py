"""Files of a checkpoint and of a bundle: binary, YAML, and the model card."""

from pathlib import Path
from typing import Any

import numpy as np
import yaml

from models.arrays import Array
from models.storage.checkpoint import CARD_FILE, TARGET_TOKENIZER_FILE, TOKENIZER_FILE
from models.storage.files import read_text


def checkpoint_files(card: bytes, source: bytes, target: bytes | None = None) -> dict[str, bytes]:
    """Name them. target: the tokenizer of the target, which may be the source's."""
    files = {TOKENIZER_FILE: source, CARD_FILE: card}
    return files if target is None or target == source else files | {TARGET_TOKENIZER_FILE: target}


def card_of(title: str, origin: str, *facts: str) -> bytes:
    """Write the beginning of a model card in Markdown."""
    lines = [f"# {title}", "", origin, "", *(f"- {fact}" for fact in facts)]
    return ("\n".join(lines) + "\n").encode()


class MalformedFile(Exception):
    """Says that the rest of the file cannot be made sense of."""


class Cursor:
    """Where one is in a file; raises MalformedFile where that ends."""

    def __init__(self, memory: Array) -> None:
        """memory: uint8."""
        self.memory, self.offset = memory, 0

    @property
    def num_left(self) -> int:
        return len(self.memory) - self.offset

    def array(self, dtype: Any, count: int, what: str = "the next value") -> Array:
        """View `count` values of the file. what: its part, in words."""
        size = count * np.dtype(dtype).itemsize
        if size > self.num_left:
            raise MalformedFile(
                f"is cut short or damaged: {what} would need {size} bytes from byte"
                f" {self.offset} on, and {self.num_left} are left"
            )
        start, self.offset = self.offset, self.offset + size
        return self.memory[start : self.offset].view(dtype)

    def number(self, dtype: str, what: str = "the next value") -> int:
        """Read one integer."""
        return int(self.array(dtype, 1, what)[0])

    def bytes(self, count: int) -> bytes:
        """Copy as many bytes."""
        return self.array("u1", count).tobytes()


MOST_YAML_BYTES = 2**18  # of a configuration, a thousand of whose lines take 70 ms to read


class _Plain(yaml.SafeLoader):
    """Makes nothing but plain containers; an object of a class is the dictionary of its fields."""


def _fields(loader: _Plain, tag: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node)  # type: ignore[arg-type]


_Plain.add_multi_constructor("", _fields)


def read_yaml(path: Path, problems: list[str]) -> dict[str, Any]:
    """Read an object; what is wrong is a problem, and gives an empty one."""
    try:
        values = yaml.load(read_text(path, MOST_YAML_BYTES), Loader=_Plain)
    except FileNotFoundError:
        problems.append(f"{path.name} is missing")
    except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        problems.append(f"{path.name} cannot be read: {' '.join(str(error).split())}")
    else:
        if isinstance(values, dict):
            return {str(name): value for name, value in values.items()}
        problems.append(f"{path.name}: expected options, found {type(values).__name__}")
    return {}
