"""Declares options of decoding, each once: as the metadata of a field of a class of parameters.

From a declaration come the check of a value, the field of an HTTP body with its description, the
option of a command, what a bundle may recommend, and the table in docs/decoding.md.
`serving.parameters` holds the declarations; this file does not know them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, get_type_hints

from serving.errors import RequestError

MAX_COUNT = 2**31 - 1


def require_integer(field: str, value: object, low: int, high: int = MAX_COUNT) -> None:
    in_range = f"at least {low}" if high == MAX_COUNT else f"between {low} and {high}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestError(field, value, f"must be an integer {in_range}")
    if not low <= value <= high:
        raise RequestError(field, value, f"must be {in_range}")


def require_number(field: str, value: object, low: float, high: float) -> None:
    message = f"must be a number between {low:g} and {high:g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(field, value, message)
    if not math.isfinite(value) or not low <= value <= high:
        raise RequestError(field, value, message)


def require_positive(field: str, value: float, high: float) -> None:
    Numbers(0.0, high, is_low_open=True).check(field, value)


@dataclass(frozen=True, slots=True)
class Integers:
    """Allows integers from low to high.

    text: how a reader is told, where the numbers say too little.
    """

    low: int
    high: int = MAX_COUNT
    text: str = ""

    def check(self, field: str, value: object) -> None:
        require_integer(field, value, self.low, self.high)

    def __str__(self) -> str:
        in_numbers = (
            f"{self.low} or more" if self.high == MAX_COUNT else f"{self.low} to {self.high}"
        )
        return self.text or in_numbers

    @property
    def schema(self) -> dict[str, Any]:
        """Return the same in keywords of JSON Schema."""
        return {"minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class Numbers:
    """Allows finite numbers from low to high. An open low end is not allowed itself."""

    low: float
    high: float
    is_low_open: bool = False

    def check(self, field: str, value: object) -> None:
        require_number(field, value, self.low, self.high)
        if self.is_low_open and value == self.low:
            raise RequestError(field, value, f"must be greater than {self.low:g}")

    def __str__(self) -> str:
        above = "above " * self.is_low_open
        return f"{above}{self.low:g} to {self.high:g}"

    @property
    def schema(self) -> dict[str, Any]:
        low = "exclusiveMinimum" if self.is_low_open else "minimum"
        return {low: self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class Choices:
    """Allows a few values and no others, by the words that clients write: JSON's, and texts."""

    by_word: Mapping[str, Any]

    def check(self, field: str, value: object) -> None:
        if value not in self.by_word.values():
            raise RequestError(field, value, f"must be {self}")

    def __str__(self) -> str:
        *words, last = (
            f'"{word}"' if value == word else word for word, value in self.by_word.items()
        )
        return f"{', '.join(words)} or {last}"

    @property
    def schema(self) -> dict[str, Any]:
        return {"enum": [*self.by_word.values()]}


Values = Integers | Numbers | Choices


@dataclass(frozen=True, slots=True)
class Option:
    """Describes one option of decoding, as it is declared.

    type: the field's annotation.
    default: changes nothing; None where there may be no value, MISSING where one must be given.
    help: what it does, in a sentence or two that stand for themselves, with the paper.
    needs: what must be asked for beside it, else it does nothing.
    is_recommendable: a bundle may recommend a value for requests that give none.
    needs_source: it acts on models with a source only.
    """

    name: str
    type: Any
    default: Any
    values: Values
    help: str
    needs: str | None = None
    is_recommendable: bool = True
    needs_source: bool = False

    def check(self, value: object) -> None:
        """Raise a RequestError that names the option, unless this is a value of it."""
        if value is not None or self.default is not None:
            self.values.check(self.name, value)


def option(default: Any, values: Values, help: str, **more: Any) -> Any:
    """Declare a field of a class of parameters to be an option; see `Option`."""
    return field(default=default, metadata={"values": values, "help": help, **more})


@cache
def options_of(params: type) -> tuple[Option, ...]:
    """List the options of a class of parameters; its other fields are not for clients."""
    types = get_type_hints(params)
    declared = (each for each in fields(params) if each.metadata)
    return tuple(Option(f.name, types[f.name], f.default, **f.metadata) for f in declared)


def check_options(params: object) -> None:
    """Check every option of these parameters, in the order of their declaration."""
    for each in options_of(type(params)):  # type: ignore[arg-type] # classes are hashable
        each.check(getattr(params, each.name))


def only_of(params: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Take the options of a class of parameters from values, in which any may be missing."""
    names = (each.name for each in options_of(params))
    return {name: values[name] for name in names if name in values}
