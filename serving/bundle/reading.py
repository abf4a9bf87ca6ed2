"""Turns plain JSON values into frozen dataclasses and says everything that is wrong with them.

It knows the shapes that type annotations can say (numbers, strings, enums, unions, tuples, dicts,
nested dataclasses) and nothing about bundles.
"""

import dataclasses
import enum
import types
import typing
from typing import Any, TypeVar

T = TypeVar("T")


def read_dataclass(cls: type[T], value: Any, problems: list[str], where: str = "") -> T | None:
    """Build ``cls`` from a JSON object; on any problem append to ``problems`` and return None."""
    num_before = len(problems)
    if not isinstance(value, dict):
        problems.append(f"{where or 'the document'}: expected an object, got {_kind(value)}")
        return None
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    problems.extend(f"{_join(where, key)}: unknown key" for key in value if key not in fields)
    found = {}
    for name, field in fields.items():
        if name in value:
            found[name] = _read(hints[name], value[name], problems, _join(where, name))
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            problems.append(f"{_join(where, name)}: missing")
    return cls(**found) if len(problems) == num_before else None


def to_json(value: Any) -> Any:
    """Plain JSON value of a dataclass; ``read_dataclass`` gives the dataclass back."""
    return dataclasses.asdict(value)


def _read(hint: Any, value: Any, problems: list[str], where: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _read_union(args, value, problems, where)
    if origin is tuple:
        return _read_tuple(args[0], value, problems, where)
    if origin is dict:
        return _read_dict(args[1], value, problems, where)
    if dataclasses.is_dataclass(hint):
        return read_dataclass(typing.cast(type, hint), value, problems, where)
    if issubclass(hint, enum.Enum):
        return _read_enum(hint, value, problems, where)
    return _read_plain(hint, value, problems, where)


def _read_union(choices: tuple[Any, ...], value: Any, problems: list[str], where: str) -> Any:
    """Read the first choice that fits. One choice besides None reports its own problems."""
    if value is None and types.NoneType in choices:
        return None
    others = [choice for choice in choices if choice is not types.NoneType]
    for choice in others:
        own_problems: list[str] = []
        result = _read(choice, value, own_problems, where)
        if not own_problems:
            return result
    if len(others) == 1:
        problems.extend(own_problems)
    else:
        names = " or ".join(choice.__name__ for choice in others)
        problems.append(f"{where}: expected {names}, got {_kind(value)}")
    return None


def _read_tuple(item: Any, value: Any, problems: list[str], where: str) -> Any:
    if not isinstance(value, list | tuple):
        problems.append(f"{where}: expected a list, got {_kind(value)}")
        return None
    return tuple(_read(item, v, problems, f"{where}[{i}]") for i, v in enumerate(value))


def _read_dict(item: Any, value: Any, problems: list[str], where: str) -> Any:
    if not isinstance(value, dict):
        problems.append(f"{where}: expected an object, got {_kind(value)}")
        return None
    return {key: _read(item, v, problems, _join(where, key)) for key, v in value.items()}


def _read_enum(hint: type[enum.Enum], value: Any, problems: list[str], where: str) -> Any:
    try:
        return hint(value)
    except ValueError:
        choices = ", ".join(str(member.value) for member in hint)
        problems.append(f"{where}: {value!r} is not one of {choices}")
        return None


def _read_plain(hint: type, value: Any, problems: list[str], where: str) -> Any:
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:  # not isinstance: True is no integer here
        problems.append(f"{where}: expected {hint.__name__}, got {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    shown = repr(value)
    shown = shown if len(shown) <= 40 else shown[:37] + "..."
    return f"{type(value).__name__} {shown}"


def _join(where: str, key: object) -> str:
    return f"{where}.{key}" if where else str(key)
