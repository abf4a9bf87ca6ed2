"""What the protocols ask of a model and what it answers, in text.

Plain values: they cross to another process when another worker group serves the model.
"""

from dataclasses import dataclass

from serving.bundle.manifest import Manifest, Task
from serving.parameters import GREEDY, SamplingParams
from serving.request import FinishReason


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What a client may know about a model that is served."""

    name: str
    task: Task
    source_languages: tuple[str, ...]
    target_languages: tuple[str, ...]
    max_target_tokens: int

    @classmethod
    def of(cls, manifest: Manifest) -> "ModelCard":
        return cls(
            manifest.name,
            manifest.task,
            manifest.source_languages,
            manifest.target_languages,
            manifest.limits.max_target_tokens,
        )

    def translates(self, source: str, target: str) -> bool:
        return source in self.source_languages and target in self.target_languages


@dataclass(frozen=True, slots=True)
class TranslationJob:
    request_id: str
    texts: tuple[str, ...]
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Translation:
    texts: tuple[str, ...]
    num_source_tokens: int
    num_generated_tokens: int


@dataclass(frozen=True, slots=True)
class CompletionJob:
    """`num_samples` completions of each prompt; prompts are text or token ids.

    logprobs: how many of the likeliest tokens to report with each token; None reports none.
    """

    request_id: str
    prompts: tuple[str | tuple[int, ...], ...]
    num_samples: int = 1
    max_new_tokens: int = 16
    sampling: SamplingParams = GREEDY
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    echo: bool = False


@dataclass(frozen=True, slots=True)
class TokenText:
    """A generated token as text. offset: characters of the completion before it."""

    text: str
    logprob: float
    top: tuple[tuple[str, float], ...]
    offset: int


@dataclass(frozen=True, slots=True)
class CompletionDelta:
    """The next piece of one completion; the one with a `finish_reason` is its last.

    index: prompt by prompt, the samples of a prompt together.
    num_generated_tokens: so far.
    """

    index: int
    text: str
    tokens: tuple[TokenText, ...] = ()
    finish_reason: FinishReason | None = None
    num_prompt_tokens: int = 0
    num_generated_tokens: int = 0
