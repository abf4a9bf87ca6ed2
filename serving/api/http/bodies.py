"""Base classes of request bodies, and readers of their fields from JSON, forms and the query.

Any mistake in a body becomes a RequestError, which names the field as clients write it.
"""

import json
import re
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from serving.api.http.content_encoding import codings_of, decode_body
from serving.api.http.openapi import JSON, MULTIPART, URL_ENCODED
from serving.errors import RequestError, TooLarge, WrongMediaType
from serving.pipelines.decoding import applicable_defaults
from serving.pipelines.translation.options import TRANSLATION_OPTIONS
from serving.requests.parameters import (
    NO_PROCESSORS,
    NUM_BEAMS,
    OPTIONS,
    BeamParams,
    Option,
    ProcessorParams,
    SamplingParams,
    list_options,
    select_options,
)
from serving.text.checks import check_text

NoOpValues = Mapping[str, tuple[Any, ...]]
Refusals = Mapping[str, str]
Fields = dict[str, Any]
FormFields = list[tuple[str, str]]
MAX_BAD_WORDS = 128
_MAX_BAD_WORD_CHARACTERS = 256
_ALL_TYPES = (JSON, URL_ENCODED, MULTIPART)
_MAX_FIELDS = 10_000  # of a form; a list of texts is one field each
_FIRST_FIELD = re.compile(rb"[\w.%\[\]+-]+=")


class FieldsBody(BaseModel):
    """The fields of a request.

    The text below a field describes it in OpenAPI, and on the page.

    no_op_values: fields that have an effect only on other servers, with the values that change
        nothing there.
    refusals: fields that are refused, with the reason.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)

    no_op_values: ClassVar[NoOpValues] = {}
    refusals: ClassVar[Refusals] = {}


class RequestBody(FieldsBody):
    """The fields of a request that becomes a job."""

    @property
    @abstractmethod
    def num_characters(self) -> int:
        """Return how many characters count against the quota."""

    @abstractmethod
    def check(self, max_characters: int) -> None:
        """Raise RequestError for errors in any model. max_characters: of all texts."""

    def with_defaults(self, generation: Mapping[str, Any]) -> Self:
        """Return the body with the recommended values of the model where the client gave none."""
        return self

    @abstractmethod
    def job(self, request_id: str) -> Any:
        """Return the job that a pipeline runs. Raises RequestError."""


Body = TypeVar("Body", bound=RequestBody)
Checked = TypeVar("Checked", bound=BaseModel)
AnyBody = TypeVar("AnyBody", bound=FieldsBody)


def parse(cls: type[AnyBody], fields: Mapping[str, Any]) -> AnyBody:
    """Return a body of the fields, without those that are null or change nothing.

    Raises RequestError: of the first field in the body that is refused, else of the first field of
    the class that is wrong.
    """
    no_op_values, refusals = cls.no_op_values, cls.refusals
    effective: Fields = {}
    for name, value in fields.items():
        if value is None or (name in no_op_values and value in no_op_values[name]):
            continue
        if name in refusals:
            raise RequestError(name, value, f"is not supported here: {refusals[name]}")
        effective[name] = value
    return validate(cls, effective)


def validate(cls: type[Checked], fields: Mapping[str, Any]) -> Checked:
    """Return a pydantic model of the fields. Raises RequestError naming the first wrong field."""
    try:
        return cls.model_validate(fields)
    except ValidationError as error:
        raise _request_error(error) from None


def _request_error(error: ValidationError) -> RequestError:
    problems = error.errors(include_url=False, include_context=False)
    first = problems[0]
    # Of a union pydantic also names the branch ("q.str"); the client wrote the first name.
    field = str(first["loc"][0]) if first["loc"] else "body"
    messages = [p["msg"] for p in problems if p["loc"][:1] == first["loc"][:1]]
    inner = f"{first['loc'][-1]} " if len(first["loc"]) > 1 else ""
    if first["type"] == "missing":
        return RequestError(field, None, f"{inner}is required")
    if first["type"] == "extra_forbidden":
        return RequestError(field, first["input"], f"{inner}is not supported here")
    message = ", or ".join(dict.fromkeys(message[:1].lower() + message[1:] for message in messages))
    return RequestError(field, first["input"], message)


def option_field(option: Option, may_be_null: bool = False, **schema: Any) -> Any:
    """Return the field of a body for a decoding option, with its description and JSON schema.

    schema: replaces parts of the option's schema. Values are checked where parameters are made.
    """
    default = None if may_be_null else option.default
    needs = f" Needs {option.needs}." if option.needs else ""
    values = option.values.schema | schema
    return Field(default, description=option.help + needs, json_schema_extra=values)


def translation_field(name: str) -> Any:
    """Return the field of a body for an option of translation, with its description and range."""
    option = TRANSLATION_OPTIONS[name]
    if option.values is None:
        return Field(option.default, description=option.help)
    low, high = option.values.low, option.values.high
    return Field(option.default, description=option.help, ge=low, le=high)


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


_SAMPLING, _BEAM, _PROCESSORS = (
    frozenset(option.name for option in list_options(params))
    for params in (SamplingParams, BeamParams, ProcessorParams)
)


@lru_cache
def _plain_sampling(temperature: float) -> SamplingParams:
    return SamplingParams(temperature)


class DecodingFields(_DeclaredFields):
    """All decoding options, at defaults that change nothing.

    The fields below are declared again because this file uses them by name, or because they may be
    null here.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)

    temperature: float | None = option_field(OPTIONS["temperature"], may_be_null=True)
    top_k: int = option_field(OPTIONS["top_k"], minimum=-1)
    num_beams: int | None = option_field(OPTIONS["num_beams"], may_be_null=True)
    bad_words: list[str] = Field(default_factory=list)
    """Texts that are never written."""
    priority: int = 0
    """Requests of lower values come first; those of the same value as they came."""
    timeout_seconds: float | None = None
    """Ends the request with an error if it takes longer."""

    def with_defaults(self, generation: Mapping[str, Any]) -> Self:
        """Return the body with the recommended values of the model where the client gave none."""
        if not generation:
            return self
        explicit = {name: getattr(self, name) for name in self.model_fields_set}
        defaults = applicable_defaults(generation, explicit, **self._search_arguments())
        fields = type(self).model_fields
        return self.model_copy(update={n: v for n, v in defaults.items() if n in fields})

    def _search_arguments(self) -> dict[str, Any]:
        """Return the arguments of `applicable_defaults` for the search that the client asks for."""
        return {"searches": self.num_beams is not None}

    # Most requests set none of these options. To see that is faster than to make their parameters.

    def sampling(self, default_temperature: float) -> SamplingParams:
        if self.model_fields_set.isdisjoint(_SAMPLING):
            return _plain_sampling(default_temperature)
        if self.top_k < -1:  # vLLM's clients turn it off with -1
            raise RequestError("top_k", self.top_k, "must be at least 0, or -1 for all")
        temperature = default_temperature if self.temperature is None else self.temperature
        adapted = {"temperature": temperature, "top_k": max(self.top_k, 0)}
        return SamplingParams(**select_options(SamplingParams, vars(self)) | adapted)

    def beam(self, width: int | None, num_hypotheses: int) -> BeamParams | None:
        """Return the parameters of a beam search; None without a width.

        Raises RequestError for fields that need a beam search if there is none.
        """
        if width is None and self.model_fields_set.isdisjoint(_BEAM):
            return None
        options = select_options(BeamParams, vars(self))
        if width is not None:
            return BeamParams(**options | {"num_beams": width}, num_hypotheses=num_hypotheses)
        for option in list_options(BeamParams):
            value = options.get(option.name, option.default)
            if option.needs == NUM_BEAMS and value != option.default:
                raise RequestError(option.name, value, f"needs {NUM_BEAMS}")
        return None

    def processors(self) -> ProcessorParams:
        if self.model_fields_set.isdisjoint(_PROCESSORS):
            return NO_PROCESSORS
        return ProcessorParams(**select_options(ProcessorParams, vars(self)))

    def checked_bad_words(self) -> tuple[str, ...]:
        """Return the bad words. Raises RequestError for an empty one."""
        if len(self.bad_words) > MAX_BAD_WORDS or not all(map(str.strip, self.bad_words)):
            message = f"must be at most {MAX_BAD_WORDS} texts, none empty"
            raise RequestError("bad_words", self.bad_words, message)
        for word in self.bad_words:
            check_text("bad_words", word, _MAX_BAD_WORD_CHARACTERS)
        return tuple(self.bad_words)


@dataclass(frozen=True)
class FieldReader:
    """How the fields of a request are read. media_types: of its bodies, for OpenAPI."""

    media_types: tuple[str, ...]
    read: Callable[[Request], Awaitable[Fields]]


async def _read_json(request: Request) -> Fields:
    return _parse_json(request, await request.body(), (JSON,))


READS_JSON = FieldReader((JSON,), _read_json)


def reads_all(repeated: str) -> FieldReader:
    """Return a reader of JSON, forms and the query, of which the body wins. repeated: a field that
    may be given often.
    """

    async def read(request: Request) -> Fields:
        body, content_type = await request.body(), _media_type(request)
        if content_type == JSON and body and not request.scope["query_string"]:
            return _parse_json(request, body, _ALL_TYPES)
        pairs = request.query_params.multi_items()
        if content_type in (URL_ENCODED, MULTIPART):
            return _gather([*pairs, *await _parse_form(request, body)], repeated)
        fields = _gather(pairs, repeated)
        return {**fields, **_parse_json(request, body, _ALL_TYPES)} if body else fields

    return FieldReader(_ALL_TYPES, read)


def reads_json_or_form(*lists: str) -> FieldReader:
    """Return a reader of JSON and URL-encoded forms, and for GET requests of the query and a form,
    which DeepL's client for Python sends. lists: fields of forms that are lists, even
    if given once.
    """

    async def read(request: Request) -> Fields:
        content_type, body = _media_type(request), await request.body()
        if request.method == "GET":
            pairs = [*request.query_params.multi_items(), *await _parse_form(request, body)]
        elif content_type in ("", JSON):
            return _parse_json(request, body, (JSON, URL_ENCODED))
        elif content_type == URL_ENCODED:
            pairs = await _parse_form(request, body)
        else:
            raise WrongMediaType("Content-Type", content_type, f"must be {JSON} or {URL_ENCODED}")
        values: dict[str, list[str]] = {}
        for name, value in pairs:
            values.setdefault(name, []).append(value)
        return {name: values[name] if name in lists else values[name][-1] for name in values}

    return FieldReader((JSON, URL_ENCODED), read)


def _parse_json(request: Request, body: bytes, media_types: tuple[str, ...]) -> Fields:
    """Parse JSON; of a form the error says that it is one. media_types: that the endpoint reads."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        form = _type_of_form(body)
        if form in media_types:
            message = f"is a form, but {_describe_media_type(request)}: send Content-Type: {form}"
        elif form:
            message = f"is a form, but only JSON is read here: send it with Content-Type: {JSON}"
        else:
            message = f"is not valid JSON: {error}"
        raise RequestError("body", body, message) from None
    if not isinstance(value, dict):
        raise RequestError("body", value, "must be a JSON object")
    return value


def _type_of_form(body: bytes) -> str | None:
    """Return the media type of a body that looks like a form; None for any other."""
    if body.startswith(b"--") and b"form-data" in body:
        return MULTIPART
    return URL_ENCODED if _FIRST_FIELD.match(body) else None


def _describe_media_type(request: Request) -> str:
    content_type = _media_type(request)
    return f"its Content-Type says {content_type}" if content_type else "it has no Content-Type"


def limit_body(request: Request, max_bytes: int) -> Request:
    """Return the request with a body that is decoded if the client has compressed it, and that
    raises an error if it is too large or cut short.
    """
    receive = _count_bytes(request.receive, max_bytes)
    if "content-encoding" in request.headers:
        codings = codings_of(request.headers.getlist("content-encoding"))
        if codings:
            receive = _count_bytes(decode_body(receive, codings, max_bytes), max_bytes)
    return Request(request.scope, receive)


def _count_bytes(receive: Receive, max_bytes: int) -> Receive:
    num_bytes = 0

    async def receive_counted() -> Message:
        nonlocal num_bytes
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestError("body", f"{num_bytes} bytes", "must not end before it is whole")
        num_bytes += len(message.get("body", b""))
        if num_bytes > max_bytes:
            raise TooLarge("body", f"more than {max_bytes} bytes", "is too large")
        return message

    return receive_counted


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _parse_form(request: Request, body: bytes) -> FormFields:
    """Read a form, without files. A URL-encoded one may hold UTF-8, as of `curl -d q=é`."""
    content_type = _media_type(request)
    if body.lstrip()[:1] == b"{" and content_type:  # as of `curl -d '{"q": ...}'`
        message = f"is JSON, but {_describe_media_type(request)}, a form: send Content-Type: {JSON}"
        raise RequestError("body", body, message)
    if content_type == MULTIPART:
        return await _parse_multipart(request)
    try:
        return parse_qsl(body.decode(), True, errors="strict", max_num_fields=_MAX_FIELDS)
    except ValueError:
        message = f"is not a form in UTF-8 of at most {_MAX_FIELDS} fields"
        raise RequestError("body", body, message) from None


async def _parse_multipart(request: Request) -> FormFields:
    """Read a form in parts."""
    try:
        async with request.form(max_fields=_MAX_FIELDS) as form:
            return [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
    except HTTPException as error:  # Starlette raises it for any mistake in a form
        content_type = request.headers["content-type"]
        raise RequestError(
            "body", content_type, f"is not a form in parts: {error.detail}"
        ) from None


def _gather(pairs: FormFields, repeated: str) -> Fields:
    fields: Fields = dict(pairs)
    values = [value for name, value in pairs if name == repeated]
    if len(values) > 1:
        fields[repeated] = values
    return fields
