"""Bodies of OpenAI's completions: which fields are understood, and which only at rest.

Clients send many fields at the value that changes nothing. Those are accepted at that value;
anything else would be ignored silently, so it is refused, naming the field.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from serving.errors import RequestError
from serving.parameters import SamplingParams
from serving.pipelines.jobs import CompletionJob
from serving.request import MAX_LOGPROBS

MAX_CHOICES = 128  # completions of one request, as OpenAI has it
_MAX_STOPS = 4

# Fields of OpenAI's and vLLM's that other servers act on, each with the values that do nothing.
_AT_REST: dict[str, tuple[Any, ...]] = {
    "bad_words": ([],),
    "frequency_penalty": (0,),
    "ignore_eos": (False,),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "min_p": (0,),
    "min_tokens": (0,),
    "no_repeat_ngram_size": (0,),
    "presence_penalty": (0,),
    "priority": (0,),
    "repetition_penalty": (1,),
    "stop_token_ids": ([],),
    "suffix": ("",),
    "typical_p": (1,),
    "use_beam_search": (False,),
}


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    include_usage: bool = False
    continuous_usage_stats: bool = False


class CompletionBody(BaseModel):
    """`POST /v1/completions`. best_of: only what `n` says; user: accepted and not used."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str
    prompt: str | list[int] | list[str] | list[list[int]]
    max_tokens: Annotated[int, Field(ge=1)] = 16
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] = 1
    best_of: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: str | list[str] = Field(default_factory=list)
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    echo: bool = False
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    user: str | None = None

    @property
    def prompts(self) -> tuple[str | tuple[int, ...], ...]:
        prompt = self.prompt
        if isinstance(prompt, str):
            return (prompt,)
        if prompt and isinstance(prompt[0], int):
            return (tuple(item for item in prompt if isinstance(item, int)),)
        return tuple(tuple(item) if isinstance(item, list) else str(item) for item in prompt)

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def job(self, request_id: str) -> CompletionJob:
        self._check()
        return CompletionJob(
            request_id=request_id,
            prompts=self.prompts,
            num_samples=self.n,
            max_new_tokens=self.max_tokens,
            sampling=SamplingParams(
                self.temperature, max(self.top_k, 0), self.top_p, seed=self.seed
            ),
            stop=self.stops,
            logprobs=self.logprobs,
            echo=self.echo,
        )

    def _check(self) -> None:
        """What the types cannot say."""
        num_choices = len(self.prompts) * self.n
        if not 1 <= num_choices <= MAX_CHOICES:
            message = f"prompts times n must be between 1 and {MAX_CHOICES}"
            raise RequestError("prompt", num_choices, message)
        if self.best_of not in (None, self.n):
            raise RequestError("best_of", self.best_of, "must be equal to n")
        if len(self.stops) > _MAX_STOPS or "" in self.stops:
            raise RequestError("stop", self.stop, f"must be at most {_MAX_STOPS} texts, none empty")
        if self.echo and self.logprobs is not None:
            raise RequestError("echo", True, "cannot be combined with logprobs")
        if self.top_k < -1:  # vLLM's clients turn it off with -1
            raise RequestError("top_k", self.top_k, "must be at least 0, or -1 for all")


def without_fields_at_rest(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that ask for something; null asks for nothing."""
    return {
        name: value
        for name, value in fields.items()
        if value is not None and not any(_same(value, rest) for rest in _AT_REST.get(name, ()))
    }


def _same(value: Any, rest: Any) -> bool:
    return isinstance(value, bool) == isinstance(rest, bool) and bool(value == rest)
