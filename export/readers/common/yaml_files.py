"""Reads YAML that others wrote as plain data, whatever types it names."""

from pathlib import Path
from typing import Any

import yaml

from models.storage.files import read_text

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
