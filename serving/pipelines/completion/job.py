"""Holds what the protocols ask of a language model, and its answers, in text.

Plain values: they cross to another process when another worker group serves the model.
"""

from dataclasses import dataclass

from serving.pipelines.decoding import PLAIN, Decoding
from serving.pipelines.seen import SeenAttention
from serving.request import FinishReason, Look
from serving.text.chat.template import Chat
from serving.text.vocabulary.shown_tokens import Shown, spelt


@dataclass(frozen=True, slots=True)
class CompletionJob:
    """Asks for completions of each prompt.

    prompts: text, token ids or chats. Ids are taken as they are: a start token comes before a
        text, not before ids.
    num_samples: completions of a prompt; under beam search its `num_hypotheses` count instead.
    echo: begin with the prompt, whose tokens are reported if the completion's are.
    streams: deltas are wanted as early as they are certain.
    looks: what tokens look at is wanted, of the best completion of each run.
    """

    request_id: str
    prompts: tuple[str | tuple[int, ...] | Chat, ...]
    decoding: Decoding = PLAIN
    num_samples: int = 1
    stop: tuple[str, ...] = ()
    echo: bool = False
    streams: bool = False
    looks: tuple[Look, ...] = ()

    @property
    def num_choices(self) -> int:
        """Count the completions of each prompt."""
        beam = self.decoding.beam
        return beam.num_hypotheses if beam else self.num_samples


@dataclass(frozen=True, slots=True)
class TokenText:
    """Holds a token and its text.

    token: its bytes; its id if the model's tokenizer has none of that id.
    logprob: None of a prompt's first token if nothing comes before it.
    top: the likeliest tokens and their log-probabilities.
    offset: characters of the completion before it.
    """

    token: Shown
    logprob: float | None
    top: tuple[tuple[Shown, float], ...]
    offset: int

    @property
    def text(self) -> str:
        return spelt(self.token)


@dataclass(frozen=True, slots=True)
class CompletionDelta:
    """Holds the next piece of one completion; the one with a `finish_reason` is its last.

    index: prompt by prompt, the choices of a prompt together.
    num_generated_tokens: so far.
    score: with the last piece of a hypothesis, what it was ranked by.
    seen: with the last piece, what each look of the job saw.
    """

    index: int
    text: str
    tokens: tuple[TokenText, ...] = ()
    finish_reason: FinishReason | None = None
    num_prompt_tokens: int = 0
    num_generated_tokens: int = 0
    score: float | None = None
    seen: tuple[SeenAttention, ...] = ()
