"""Options of a configuration file, read with all problems noted, and notes on unused ones."""

import re
import reprlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from models.files import MOST_CONFIG_BYTES, read_json, read_text
from serving.bundle.manifest import SPLIT_TOKENS

MOST_LAYERS = 1000  # more than any model has, and few enough to look for
MOST_EXPERTS = 1024  # in a layer
MOST_POSITIONS = 2**17  # of a table that is computed
WIDEST = 2**16  # vector
LARGEST = 1e30  # number
MOST_NAMED = 20  # options in a note
MOST_YAML_BYTES = 2**18  # of a configuration, a thousand of whose lines take 70 ms to read


class Options:
    """The values of one object of a configuration file.

    A null counts as missing, unless `default_to` gave it a meaning. A value of a wrong type is
    added to `problems` and replaced by the default, so that reading goes on.

    prefix: of the names in `used`, the names that were read; a section adds its own name with a
        dot.
    """

    def __init__(
        self,
        file: str,
        values: Mapping[str, Any],
        problems: list[str],
        used: set[str] | None = None,
        prefix: str = "",
    ) -> None:
        self.file, self.problems = file, problems
        self.values = {name: value for name, value in values.items() if value is not None}
        self._nulls = values.keys() - self.values.keys()
        self._names_in_file = tuple(self.values)
        self._used, self._prefix = set() if used is None else used, prefix

    def __contains__(self, name: str) -> bool:
        self.use(name)
        return name in self.values

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value of any type."""
        self.use(name)
        return self.values.get(name, default)

    def use(self, *names: str) -> None:
        """Mark options as read that have no effect here."""
        self._used.update(self._prefix + name for name in names)

    def list_unused(self) -> Iterator[tuple[str, Any]]:
        """Yield the full names and values of the file's options that were not read."""
        for name in self._names_in_file:
            full_name, value = self._prefix + name, self.values.get(name)
            if f"{full_name}." in self._used and isinstance(value, dict):
                yield from self.section(name).list_unused()
            elif full_name not in self._used:
                yield full_name, value

    def default_to(self, **values: Any) -> None:
        """Set values for names that are missing in the file; a null stays null."""
        missing = values.keys() - self._nulls
        self.values = {name: values[name] for name in missing} | self.values

    def integer(self, name: str, default: int | None = None, at_most: int = 2**31 - 1) -> int:
        """Read a size or number of something: never negative."""
        value: int = self._read_typed(name, 1 if default is None else default, default is None, int)
        if 0 <= value <= at_most:
            return value
        self.refuse(name, f"must be one of 0 to {at_most}")
        return 1

    def number(self, name: str, default: float | None = None) -> float:
        value = self._read_typed(
            name, 1.0 if default is None else default, default is None, int, float
        )
        if abs(value) < LARGEST:  # false of what is not finite, too
            return float(value)
        self.refuse(name, "is no number to compute with")
        return 1.0

    def positive(self, name: str, default: float | None = None) -> float:
        value = self.number(name, default)
        if value > 0:
            return value
        self.refuse(name, "must be more than 0")
        return 1.0

    def flag(self, name: str, default: bool) -> bool:
        return self._read_typed(name, default, False, bool)

    def word(self, name: str, default: str | None = None) -> str:
        return self._read_typed(name, default or "", default is None, str)

    def ids(self, name: str) -> tuple[int, ...]:
        """Read one id or a list of them: `eos_token_id`."""
        return self._read_list(name, int, self.get(name, []))

    def integers(self, name: str) -> tuple[int, ...]:
        return self._read_list(name, int, self._read_typed(name, [], False, list))

    def numbers(self, name: str) -> tuple[float, ...]:
        return tuple(
            map(float, self._read_list(name, (int, float), self._read_typed(name, [], False, list)))
        )

    def words(self, name: str) -> tuple[str, ...]:
        return self._read_list(name, str, self._read_typed(name, [], False, list))

    def section(self, name: str) -> "Options":
        """Return the options of an inner object, empty if there is none."""
        self.use(f"{name}.")
        values, prefix = self._read_typed(name, {}, False, dict), f"{self._prefix}{name}."
        return Options(f"{self.file}: {name}", values, self.problems, self._used, prefix)

    def only(self, name: str, *supported: Any) -> None:
        """Add a problem if the option has another value than these."""
        if name in self and self.values[name] not in supported:
            self.refuse(name)

    def refuse(self, name: str, reason: str = "is not supported") -> None:
        value = reprlib.repr(self.get(name))
        self.problems.append(f"{self.file}: {name} {value} {reason}")

    def _read_typed(self, name: str, default: Any, is_required: bool, *kinds: type) -> Any:
        value = self.get(name, default)
        if name not in self.values and is_required:
            self.problems.append(f"{self.file}: {name} is missing")
        elif not _has_type(value, *kinds):
            self.refuse(name, f"must be {' or '.join(kind.__name__ for kind in kinds)}")
            return default
        return value

    def _read_list(self, name: str, kinds: Any, value: Any) -> tuple[Any, ...]:
        values = value if isinstance(value, list) else [value]
        kinds = kinds if isinstance(kinds, tuple) else (kinds,)
        if not all(_has_type(item, *kinds) for item in values):
            self.refuse(name, f"must hold {kinds[-1].__name__} only")
            return ()
        return tuple(values)


def _has_type(value: Any, *kinds: type) -> bool:
    """Return whether the value is of one of these types; a truth value is no number."""
    return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


def merge_options(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Join options of ours; what several parts say of one section comes together in it."""
    merged: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            is_section = isinstance(value, dict) and name in merged
            merged[name] = {**merged[name], **value} if is_section else value
    return merged


def read_options(
    path: Path,
    problems: list[str],
    *,
    is_required: bool = False,
    most_bytes: int = MOST_CONFIG_BYTES,
) -> Options:
    """Read the object in the file; empty, and a problem where required, without one."""
    values: Any = {}
    try:
        values = read_json(path, most_bytes)
    except FileNotFoundError:
        if is_required:
            problems.append(f"{path.name} is missing")
    except OSError as error:
        problems.append(f"{path.name} cannot be read: {error.strerror}")
    except ValueError as error:
        problems.append(f"{path.name} {error}")
    if not isinstance(values, dict):
        problems.append(f"{path.name}: expected an object, found {type(values).__name__}")
        values = {}
    return Options(path.name, values, problems)


def unused_notes(options: Options, *without_effect: re.Pattern[str]) -> list[str]:
    """Return a note with the options of a file that were not read, or no note if there are none.

    without_effect: patterns; an option whose whole name matches one is left out.
    """
    unread = [
        f"{name} = {reprlib.repr(value)}"
        for name, value in options.list_unused()
        if not any(pattern.fullmatch(name) for pattern in without_effect)
    ]
    if not unread:
        return []
    more = f" and {len(unread) - MOST_NAMED} more" if len(unread) > MOST_NAMED else ""
    listed = ", ".join(unread[:MOST_NAMED]) + more
    return [f"{options.file} has keys that are not known here and were not used: {listed}"]


class _Plain(yaml.SafeLoader):
    """A loader of plain containers only; an object of a class becomes a dictionary."""


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


def limit_split_tokens(longest: Any) -> int | None:
    """Return the length of the longest sentence that a model was trained on as `split_tokens`;
    None where it says little, because few sentences come near it.
    """
    is_length = type(longest) is int and 2 <= longest < SPLIT_TOKENS
    return longest if is_length else None
