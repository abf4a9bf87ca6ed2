"""Fields of decoding that every protocol takes by the same names."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, Field

from serving.errors import RequestError
from serving.parameters import BeamParams, ProcessorParams, SamplingParams
from serving.pipelines.defaults import applicable
from serving.text.plain_text import check_text

DEFAULT_BEAMS = 4
MAX_BAD_WORDS = 128
_MAX_BAD_WORD_CHARACTERS = 256
_NEED_BEAMS = ("length_penalty", "early_stopping", "patience")


class DecodingFields(BaseModel):
    """The defaults change nothing; models may have others, see `with_defaults`. num_beams: beam
    search, of this width. min_tokens: before any end.
    """

    temperature: float | None = None
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    epsilon_cutoff: float = 0.0
    seed: int | None = None
    num_beams: int | None = None
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    patience: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    no_repeat_ngram_size: int = 0
    min_tokens: int = 0
    bad_words: list[str] = Field(default_factory=list)
    priority: int = 0
    timeout_seconds: float | None = None

    def with_defaults(self, generation: Mapping[str, Any]) -> Self:
        """With what the model's makers recommend where the client says nothing."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        update = applicable(generation, given, **self._search_asked())
        known = {*type(self).model_fields}
        return self.model_copy(update={n: value for n, value in update.items() if n in known})

    def _search_asked(self) -> dict[str, Any]:
        """What `applicable` has to know of the search that the client asks for."""
        return {"searches": self.num_beams is not None}

    def sampling(self, default_temperature: float) -> SamplingParams:
        if self.top_k < -1:  # vLLM's clients turn it off with -1
            raise RequestError("top_k", self.top_k, "must be at least 0, or -1 for all")
        return SamplingParams(
            temperature=default_temperature if self.temperature is None else self.temperature,
            top_k=max(self.top_k, 0),
            top_p=self.top_p,
            min_p=self.min_p,
            typical_p=self.typical_p,
            epsilon_cutoff=self.epsilon_cutoff,
            seed=self.seed,
        )

    def beam(
        self, width: int | None, num_hypotheses: int, coverage_penalty: float = 0.0
    ) -> BeamParams | None:
        """Raises RequestError for fields that do nothing without a width."""
        if width is not None:
            return BeamParams(
                width,
                num_hypotheses,
                self.length_penalty,
                self.early_stopping,
                self.patience,
                coverage_penalty,
            )
        given = {name: getattr(self, name) for name in _NEED_BEAMS}
        given["coverage_penalty"] = coverage_penalty
        defaults = {name: field.default for name, field in DecodingFields.model_fields.items()}
        for name, value in given.items():
            if value != defaults.get(name, 0.0):
                raise RequestError(name, value, "needs num_beams")
        return None

    def processors(self) -> ProcessorParams:
        return ProcessorParams(
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            no_repeat_ngram_size=self.no_repeat_ngram_size,
            min_tokens=self.min_tokens,
        )

    def banned(self) -> tuple[str, ...]:
        """The bad words. Raises RequestError for what is no word."""
        if len(self.bad_words) > MAX_BAD_WORDS or not all(map(str.strip, self.bad_words)):
            message = f"must be at most {MAX_BAD_WORDS} texts, none empty"
            raise RequestError("bad_words", self.bad_words, message)
        for word in self.bad_words:
            check_text("bad_words", word, _MAX_BAD_WORD_CHARACTERS)
        return tuple(self.bad_words)
