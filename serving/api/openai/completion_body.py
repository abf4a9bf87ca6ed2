"""The body of OpenAI's completions, with the fields of vLLM and ours.

Every field that could change an answer has an effect or is refused by name. Clients send many
fields with a value that changes nothing: null, or one of `no_op_values`.
"""

import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from serving.api.http.attention import AttentionQueryFields, parse_queries
from serving.api.http.bodies import DecodingFields, NoOpValues, RequestBody
from serving.api.openai.fields_without_effect import NO_OP_VALUES, FieldsWithoutEffect
from serving.errors import RequestError
from serving.pipelines.decoding import (
    DEFAULT_BEAMS,
    MAX_NEW_TOKENS,
    Decoding,
    Structure,
    StructureKind,
)
from serving.pipelines.jobs import CompletionJob
from serving.requests.parameters import ProcessorParams
from serving.requests.request import MAX_LOGPROBS
from serving.text.checks import (
    check_text,
    check_texts,
)

MAX_CHOICES = 128  # of one request, as in OpenAI
_DEFAULT_MAX_TOKENS = 16  # of a completion, as in OpenAI
_MAX_STOPS = 16  # OpenAI has 4; tasks of lm-evaluation-harness name more
_MAX_STOP_CHARACTERS = 256

# The fields of the engine and the pipelines, and their names in completions.
FIELD_NAMES = {
    "allowed_ids": "allowed_token_ids",
    "forced_ids": "prompt",
    "attention_queries": "return_attention",
    "max_new_tokens": "max_tokens",
    "num_hypotheses": "n",
    "prompt_ids": "prompt",
    "source": "source_language",
    "target": "target_language",
    "text": "prompt",
}


class StreamOptions(BaseModel):
    """Options of a stream. include_obfuscation: without effect."""

    model_config = ConfigDict(extra="forbid", strict=True)

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: Any = None


class JsonSchema(BaseModel):
    """A schema. name, description, strict: without effect; answers always follow the schema."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str | None = None
    description: str | None = None
    strict: bool | None = None
    json_schema: dict[str, Any] = Field(alias="schema")


class ResponseFormat(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    def structures(self) -> list[Structure]:
        if (self.json_schema is not None) != (self.type == "json_schema"):
            message = 'must have a json_schema if its type is "json_schema", and only then'
            raise RequestError("response_format", self.type, message)
        if self.json_schema is not None:
            return [_structure("response_format", "json", self.json_schema.json_schema)]
        if self.type == "json_object":
            return [Structure("json_object", "", "response_format")]
        return []


class StructuredOutputs(BaseModel):
    """vLLM's fields, of which one may be given."""

    model_config = ConfigDict(extra="forbid", strict=True)

    json_schema: str | dict[str, Any] | None = Field(default=None, alias="json")
    json_object: Literal[True] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None

    def structures(self, field: str) -> list[Structure]:
        """Return all structures that are asked for. field: prefix of their names in errors."""
        structures = [
            _structure(f"{field}{kind}", kind, value)
            for kind, value in self._values_by_kind()
            if value is not None
        ]
        if self.json_object:
            structures.append(Structure("json_object", "", f"{field}json_object"))
        return structures

    def _values_by_kind(self) -> list[tuple[StructureKind, Any]]:
        return [
            ("json", self.json_schema),
            ("regex", self.regex),
            ("choice", self.choice),
            ("grammar", self.grammar),
        ]


class GenerationBody(FieldsWithoutEffect, DecodingFields, RequestBody):
    """The fields that completions and chats share.

    temperature: 1 by default, or 0 in a beam search.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str
    """The name of a model of `/v1/models`."""
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    """Ends each answer after this many tokens. Without it, the model's recommended number counts;
    else 16 for a completion, and as many as fit for a chat."""
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] = 1
    """Returns this many answers."""
    best_of: int | None = None
    """The number of beams of a search with `use_beam_search`; else it must be `n`."""
    use_beam_search: bool = False
    """Searches with `num_beams` beams, else `best_of`, else `n` if that is more than one, else 4;
    the best `n` are returned."""
    logit_bias: dict[str, float] = Field(default_factory=dict)
    """Is added to the scores of tokens, by token id; -100 forbids one."""
    allowed_token_ids: list[int] | None = None
    """Only these tokens may be written."""
    ignore_eos: bool = False
    """Goes on after the model's end of text, up to `max_tokens`."""
    stop: str | list[str] = Field(default_factory=list)
    """Ends the answer before this text, or before the first of several."""
    stop_token_ids: list[int] = Field(default_factory=list)
    """Ends the answer at any of these tokens."""
    include_stop_str_in_output: bool = False
    """The text that ends the answer is part of it."""
    return_token_ids: bool = False
    """Returns the ids of the prompt's and the answer's tokens."""
    response_format: ResponseFormat | None = None
    """{"type": "json_object"}: the answer is a JSON object. "json_schema": it follows a schema."""
    structured_outputs: StructuredOutputs | None = None
    """vLLM's form: one of json, regex, choice, grammar, json_object."""
    guided_json: str | dict[str, Any] | None = None
    """The answer follows this JSON schema."""
    guided_regex: str | None = None
    """The answer matches this regular expression."""
    guided_choice: list[str] | None = None
    """The answer is one of these texts."""
    guided_grammar: str | None = None
    """The answer follows this grammar, in Lark's notation."""
    return_attention: list[str | AttentionQueryFields] = Field(default_factory=list)
    """Returns attention maps of prompt and completion, for a list of kinds that the model has, such
    as "decoder": by name for the mean over all layers and heads, or as an object {"kind": ...,
    "layers": [...], "heads": [...], "mean": ...}; in a stream with the last chunk of a choice."""
    stream: bool = False
    """Sends the answer in pieces, as server-sent events."""
    stream_options: StreamOptions | None = None
    """{"include_usage": true} sends the numbers of tokens at the end of a stream."""
    source_language: str | None = None
    """The language of the text, for a model that translates."""
    target_language: str | None = None
    """The language to translate into, for a model that translates."""

    @property
    @abstractmethod
    def source_texts(self) -> tuple[str, ...]:
        """Return the texts that a translator translates. Raises RequestError."""

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def decoding(self, max_new_tokens: int | None, logprobs: int | None) -> Decoding:
        self._check_stops()
        beam = self.beam(self._width(), self.n)
        return Decoding(
            sampling=self.sampling(default_temperature=0.0 if beam else 1.0),
            beam=beam,
            processors=self.processors(),
            bad_words=self.checked_bad_words(),
            stop_token_ids=tuple(self.stop_token_ids),
            ignore_eos=self.ignore_eos,
            structure=self._structure(),
            max_new_tokens=max_new_tokens,
            logprobs=logprobs,
            priority=self.priority,
            timeout_seconds=self.timeout_seconds,
        )

    def _search_arguments(self) -> dict[str, Any]:
        searches = self.use_beam_search or self.num_beams is not None
        fewest = max(self.n, self.best_of or 1) if searches else self.n
        return {"searches": searches, "min_beams": fewest, "default_temperature": 1.0}

    def _width(self) -> int | None:
        if not self.use_beam_search and self.num_beams is None:
            if self.best_of not in (None, self.n):
                message = "must be equal to n, unless use_beam_search is true"
                raise RequestError("best_of", self.best_of, message)
            return None
        if None not in (self.num_beams, self.best_of) and self.num_beams != self.best_of:
            raise RequestError("best_of", self.best_of, f"must be num_beams, {self.num_beams}")
        width = self.best_of if self.num_beams is None else self.num_beams
        if width is None:
            width = self.n if self.n > 1 else DEFAULT_BEAMS
        return width

    def processors(self) -> ProcessorParams:
        return replace(
            super().processors(),
            logit_bias=tuple((_token_id(key), bias) for key, bias in self.logit_bias.items()),
            allowed_ids=None if self.allowed_token_ids is None else tuple(self.allowed_token_ids),
        )

    def _structure(self) -> Structure | None:
        guided = StructuredOutputs.model_construct(
            json_schema=self.guided_json,
            regex=self.guided_regex,
            choice=self.guided_choice,
            grammar=self.guided_grammar,
        )
        structures = self.response_format.structures() if self.response_format else []
        if self.structured_outputs is not None:
            structures += self.structured_outputs.structures("structured_outputs.")
        return only_one([*structures, *guided.structures("guided_")])

    def check_stream(self) -> None:
        if self.stream_options is not None and not self.stream:
            raise RequestError("stream_options", "given", "is for streams, and needs stream: true")

    def _check_stops(self) -> None:
        if len(self.stops) > _MAX_STOPS or "" in self.stops:
            raise RequestError("stop", self.stop, f"must be at most {_MAX_STOPS} texts, none empty")
        for stop in self.stops:
            if len(stop) > _MAX_STOP_CHARACTERS:
                message = f"must be at most {_MAX_STOP_CHARACTERS} characters, this has {len(stop)}"
                raise RequestError("stop", stop, message)
            check_text("stop", stop, _MAX_STOP_CHARACTERS)


class CompletionBody(GenerationBody):
    """The body of `POST /v1/completions`. Encoder-decoders that do not translate are refused."""

    no_op_values: ClassVar[NoOpValues] = NO_OP_VALUES | {
        "add_special_tokens": (True,),
        "suffix": ("",),
    }

    prompt: str | list[int] | list[str] | list[list[int]]
    """Text, to which the model's start token is added, or token ids as they are, or several."""
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    """Returns the log-probability of each token, and of this many of the likeliest."""
    echo: bool = False
    """Returns the prompt before the answer; with `max_tokens` 0 the prompt alone, which `logprobs`
    scores."""

    @property
    def prompts(self) -> tuple[str | tuple[int, ...], ...]:
        prompt = self.prompt
        if isinstance(prompt, str):
            return (prompt,)
        if prompt and isinstance(prompt[0], int):
            return (tuple(item for item in prompt if isinstance(item, int)),)
        return tuple(tuple(item) if isinstance(item, list) else str(item) for item in prompt)

    @property
    def source_texts(self) -> tuple[str, ...]:
        texts = tuple(prompt for prompt in self.prompts if isinstance(prompt, str))
        if len(texts) < len(self.prompts):
            raise RequestError("prompt", self.prompt, "must be text for a model that translates")
        return texts

    @property
    def num_characters(self) -> int:
        """Count the characters of texts, and the tokens of token ids."""
        return sum(map(len, self.prompts))

    def check(self, max_characters: int) -> None:
        self.check_stream()
        texts = [prompt for prompt in self.prompts if isinstance(prompt, str)]
        check_texts("prompt", texts, max_characters)

    def with_defaults(self, generation: Mapping[str, Any]) -> Self:
        body = super().with_defaults(generation)
        if self.max_tokens is None and MAX_NEW_TOKENS not in generation:
            return body.model_copy(update={"max_tokens": _DEFAULT_MAX_TOKENS})
        return body

    def job(self, request_id: str) -> CompletionJob:
        num_choices = len(self.prompts) * self.n
        if not num_choices:
            raise RequestError("prompt", self.prompt, "must not be empty")
        if num_choices > MAX_CHOICES:
            message = f"prompts times n must be at most {MAX_CHOICES}"
            raise RequestError("prompt", num_choices, message)
        if self.max_tokens == 0 and not self.echo:
            raise RequestError("max_tokens", 0, "must be at least 1, unless echo is true")
        return CompletionJob(
            request_id=request_id,
            prompts=self.prompts,
            decoding=self.decoding(self.max_tokens, self.logprobs),
            num_samples=self.n,
            stop=self.stops,
            includes_stop=self.include_stop_str_in_output,
            echo=self.echo,
            returns_token_ids=self.return_token_ids,
            streams=self.stream,
            attention_queries=parse_queries(self.return_attention),
        )


def _token_id(key: str) -> int:
    if not (key.isascii() and key.isdecimal() and len(key) < 10):
        raise RequestError("logit_bias", key, "must be a token id")
    return int(key)


def only_one(structures: list[Structure]) -> Structure | None:
    if len(structures) > 1:
        first, second, *_ = structures
        raise RequestError(second.field, second.value, f"cannot be combined with {first.field}")
    return structures[0] if structures else None


def _structure(field: str, kind: StructureKind, value: Any) -> Structure:
    if isinstance(value, list):
        return Structure(kind, tuple(value), field)
    return Structure(kind, value if isinstance(value, str) else json.dumps(value), field)
