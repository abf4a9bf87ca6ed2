"""Messages about a wrong configuration: every problem at once, with a guess of what was meant.

pydantic's path to a wrong value includes the kind of a section, and pydantic may report one option
several times. Here each option has one message, under the name that it has in a file.
"""

import reprlib
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import TypeAdapter
from pydantic_core import ErrorDetails

from models.configs.base import ArchitectureConfig, Section

_LONGEST_NAME = 60

Configs = Mapping[str, type[ArchitectureConfig]]
Place = tuple[int | str, ...]
Sections = dict[str, type[Section]]


def problems_of(
    kind: type[ArchitectureConfig],
    values: dict[str, Any],
    errors: Iterable[ErrorDetails],
    configs: Configs,
) -> Iterator[str]:
    """Yield the problems of single options, then the conflicts between correct options."""
    wrong: dict[Place, str] = {}
    for error in errors:
        if error["loc"]:
            sections = sections_of(kind, error["loc"][0])
            place = _place(error["loc"], sections)
            message = _message(kind, place, error, sections, configs)
            wrong.setdefault(place[: 2 if sections else 1], f"{_written(place)}: {message}")
    yield from wrong.values()
    yield from _misfits(kind, values, {place[0] for place in wrong})


def _misfits(
    kind: type[ArchitectureConfig], values: dict[str, Any], wrong: set[int | str]
) -> Iterator[str]:
    annotations: dict[str, Any] = {name: f.annotation for name, f in kind.model_fields.items()}
    right = {
        name: TypeAdapter(annotation).validate_python(values[name])
        for name, annotation in annotations.items()
        if name in values.keys() - wrong
    }
    config = kind.model_construct(**{"vocab_size": 1, **right})
    for conflict in config.all_conflicts():
        if not wrong & set(conflict.fields):
            yield conflict.message


def sections_of(kind: type[ArchitectureConfig], name: int | str) -> Sections:
    """Return the sections that an option may be, by kind; empty if it is no section."""
    field = kind.model_fields.get(str(name))
    if field is None:
        return {}
    found = [each for each in get_args(field.annotation) or (field.annotation,) if _is_part(each)]
    if len(found) == 1:
        return {str(name): found[0]}
    return {each.model_fields["kind"].default: each for each in found}


def _is_part(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Section)


def _place(loc: Place, sections: Sections) -> Place:
    """Remove the kind of a section from a path."""
    return (loc[0], *loc[2:]) if len(sections) > 1 else loc


def _message(
    kind: type[ArchitectureConfig],
    place: Place,
    error: ErrorDetails,
    sections: Sections,
    configs: Configs,
) -> str:
    found = f"(got {reprlib.repr(error['input'])})"
    match error["type"]:
        case "missing":
            return "is required"
        case "extra_forbidden" if len(place) == 1:
            return _unknown_option(kind, str(place[0]), configs)
        case "extra_forbidden":
            own = str(error["loc"][1]) if len(sections) > 1 else str(place[0])
            return _unknown(str(place[1]), own, sections)
        case "model_type" | "model_attributes_type":
            return f"must be a table {_shape(sections)} {found}"
        case "union_tag_not_found":
            return f"needs a kind, one of {', '.join(sections)} {found}"
        case "union_tag_invalid":
            return f"its kind must be one of {', '.join(sections)} {found}"
        case "value_error":
            return str(error["ctx"]["error"])
    message = error["msg"][:1].lower() + error["msg"][1:].replace("tuple", "list")  # as in files
    return f"{message} {found}"


def _shape(sections: Sections) -> str:
    """Describe what a table holds: a kind, or its options."""
    if len(sections) > 1:
        return f"that has a kind, one of {', '.join(sections)}"
    return f"of {', '.join(option for each in sections.values() for option in each.model_fields)}"


def _unknown_option(kind: type[ArchitectureConfig], name: str, configs: Configs) -> str:
    own = kind.model_fields["architecture"].default
    for field in kind.model_fields:
        for section in sections_of(kind, field).values():
            for option in section.model_fields:
                if name in (option, f"{field}_{option}") and name != "kind":
                    return f"{own} has no such option; {field}.{option} is one"
    return _unknown(name, own, configs)


def _unknown(name: str, own: str, known: Mapping[str, type[Section]]) -> str:
    """Describe an unknown option and guess what was meant: another section's option or a similar
    name.
    """
    message = f"{own} has no such option"
    if others := sorted(other for other, each in known.items() if name in each.model_fields):
        return f"{message}; {', '.join(others)} {'has' if len(others) == 1 else 'have'} it"
    fields = known[own].model_fields
    similar = get_close_matches(name.lower().replace("-", "_"), fields, n=1)
    return f"{message}; did you mean {similar[0]}?" if similar else message


def _written(place: Place) -> str:
    """Return a path as text, shortened if it is long or not printable."""
    name = ".".join(map(str, place))
    return name if name.isprintable() and len(name) <= _LONGEST_NAME else reprlib.repr(name)
