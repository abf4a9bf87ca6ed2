"""Turns fields into checked bodies; everything that can be wrong with one becomes a RequestError.

A body names its fields in errors as clients write them.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ValidationError

from serving.errors import RequestError

NoOpValues = Mapping[str, tuple[Any, ...]]


class FieldsBody(BaseModel):
    """Holds the fields of a request.

    no_op_values: fields that other servers act on and this one does not, each with the values that
        do nothing.
    """

    no_op_values: ClassVar[NoOpValues] = {}


class RequestBody(FieldsBody):
    """Makes a job out of the fields of a request."""

    @property
    @abstractmethod
    def num_characters(self) -> int:
        """Return how many characters are to be worked on: what quotas count."""

    @abstractmethod
    def check(self, max_characters: int) -> None:
        """Raise RequestError for what is wrong whatever the model. max_characters: of all texts."""

    def with_defaults(self, generation: Mapping[str, Any]) -> Self:
        """Take what the model's makers recommend where the client says nothing."""
        return self

    @abstractmethod
    def job(self, request_id: str) -> Any:
        """Make the job that a pipeline runs. Raises RequestError."""


Body = TypeVar("Body", bound=RequestBody)
Checked = TypeVar("Checked", bound=BaseModel)
AnyBody = TypeVar("AnyBody", bound=FieldsBody)


def parse(cls: type[AnyBody], fields: Mapping[str, Any]) -> AnyBody:
    """Make a body out of the fields that ask for something; null asks for nothing.

    Raises RequestError naming the first field that is wrong.
    """
    asking = {
        name: value
        for name, value in fields.items()
        if value is not None and value not in cls.no_op_values.get(name, ())
    }
    return validated(cls, asking)


def validated(cls: type[Checked], fields: Mapping[str, Any]) -> Checked:
    """Make what is no job's body out of its fields. Raises RequestError likewise."""
    try:
        return cls.model_validate(fields)
    except ValidationError as error:
        raise _request_error(error) from None


def _request_error(error: ValidationError) -> RequestError:
    problems = error.errors(include_url=False, include_context=False)
    first = problems[0]
    # Of a union pydantic names the branch too ("q.str"): the field is what the client wrote.
    field = str(first["loc"][0]) if first["loc"] else "body"
    messages = [p["msg"] for p in problems if p["loc"][:1] == first["loc"][:1]]
    inner = f"{first['loc'][-1]} " if len(first["loc"]) > 1 else ""
    if first["type"] == "missing":
        return RequestError(field, None, f"{inner}is required")
    if first["type"] == "extra_forbidden":
        return RequestError(field, first["input"], f"{inner}is not supported here")
    message = ", or ".join(dict.fromkeys(message[:1].lower() + message[1:] for message in messages))
    return RequestError(field, first["input"], message)
