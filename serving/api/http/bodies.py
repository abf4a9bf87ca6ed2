"""Base classes of request bodies, with the decoding options that all protocols take.

Everything that can be wrong with a body becomes a RequestError, which names the field as clients
write it.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, Field, ValidationError, create_model

from serving.errors import RequestError
from serving.options import Option, only_of, options_of
from serving.parameters import NUM_BEAMS, OPTIONS, BeamParams, ProcessorParams, SamplingParams
from serving.pipelines.decoding import applicable_defaults
from serving.text.plain_text import check_text

NoOpValues = Mapping[str, tuple[Any, ...]]


class FieldsBody(BaseModel):
    """The fields of a request.

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


MAX_BAD_WORDS = 128
_MAX_BAD_WORD_CHARACTERS = 256


def option_field(option: Option, may_be_null: bool = False, **schema: Any) -> Any:
    """Make the field of a body for an option, described as that is declared; what `schema` says of
    its values in JSON Schema wins. Values are checked where parameters are made.
    """
    default = None if may_be_null else option.default
    needs = f" Needs {option.needs}." if option.needs else ""
    values = option.values.schema | schema
    return Field(default, description=option.help + needs, json_schema_extra=values)


if TYPE_CHECKING:
    _DeclaredFields = BaseModel
else:
    _DeclaredFields = create_model(
        "_DeclaredFields",
        **{
            option.name: (option.type, option_field(option))
            for option in OPTIONS.values()
            if not option.needs_source
        },
    )


class DecodingFields(_DeclaredFields):
    """Holds them at defaults that change nothing; models may have others, see `with_defaults`.

    Fields that this file asks for by name, or that may be null here, stand here once more.
    """

    temperature: float | None = option_field(OPTIONS["temperature"], may_be_null=True)
    top_k: int = option_field(OPTIONS["top_k"], minimum=-1)
    num_beams: int | None = option_field(OPTIONS["num_beams"], may_be_null=True)
    bad_words: list[str] = Field(default_factory=list)
    priority: int = 0
    timeout_seconds: float | None = None

    def with_defaults(self, generation: Mapping[str, Any]) -> Self:
        """Take what the model's makers recommend where the client says nothing."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        update = applicable_defaults(generation, given, **self._search_asked())
        known = {*type(self).model_fields}
        return self.model_copy(update={n: value for n, value in update.items() if n in known})

    def _search_asked(self) -> dict[str, Any]:
        """Return the arguments of `applicable_defaults` for the search that the client asks for."""
        return {"searches": self.num_beams is not None}

    def sampling(self, default_temperature: float) -> SamplingParams:
        if self.top_k < -1:  # vLLM's clients turn it off with -1
            raise RequestError("top_k", self.top_k, "must be at least 0, or -1 for all")
        temperature = default_temperature if self.temperature is None else self.temperature
        adapted = {"temperature": temperature, "top_k": max(self.top_k, 0)}
        return SamplingParams(**only_of(SamplingParams, dict(self)) | adapted)

    def beam(self, width: int | None, num_hypotheses: int) -> BeamParams | None:
        """Make the parameters of a search so wide. Raises RequestError for fields that do nothing
        without a width.
        """
        given = only_of(BeamParams, dict(self))
        if width is not None:
            return BeamParams(**given | {"num_beams": width}, num_hypotheses=num_hypotheses)
        for option in options_of(BeamParams):
            value = given.get(option.name, option.default)
            if option.needs == NUM_BEAMS and value != option.default:
                raise RequestError(option.name, value, f"needs {NUM_BEAMS}")
        return None

    def processors(self) -> ProcessorParams:
        return ProcessorParams(**only_of(ProcessorParams, dict(self)))

    def banned(self) -> tuple[str, ...]:
        """List the bad words. Raises RequestError for what is no word."""
        if len(self.bad_words) > MAX_BAD_WORDS or not all(map(str.strip, self.bad_words)):
            message = f"must be at most {MAX_BAD_WORDS} texts, none empty"
            raise RequestError("bad_words", self.bad_words, message)
        for word in self.bad_words:
            check_text("bad_words", word, _MAX_BAD_WORD_CHARACTERS)
        return tuple(self.bad_words)
