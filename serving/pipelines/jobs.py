"""What protocols ask of a model, and its answers, as plain values.

Jobs and answers are sent to another process when another worker group serves the model. The jobs of
translation models are in `serving.pipelines.translation.job`.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from serving.errors import RequestError
from serving.pipelines.attention_maps import AttentionMap
from serving.pipelines.decoding import DEFAULT_DECODING, Decoding
from serving.requests.parameters import TokenIds
from serving.requests.request import AttentionQuery, FinishReason
from serving.text.chat_template import Chat
from serving.text.token_text import (
    BytesOrId,
    token_text,
)
from serving.text.tokenizer import Tokenizer

Result = TypeVar("Result")
Item = TypeVar("Item")
Matrix = np.ndarray[Any, np.dtype[np.float32]]


class Job(Generic[Result]):
    """What a protocol asks of a model. Result: the type of the answer."""

    __slots__ = ()

    @property
    def decoding(self) -> Decoding:
        return DEFAULT_DECODING


class StreamedJob(Job[Result], Generic[Result, Item]):
    """A job whose answer may also come piece by piece. Item: the type of the pieces."""

    __slots__ = ()


def unsupported_job(model: str, job: Job[Any]) -> RequestError:
    """Return the error for a job that the model's task does not include."""
    return RequestError("model", model, f"does not take a {type(job).__name__}")


@dataclass(frozen=True, slots=True)
class TokenizeJob(Job["TokenizeResult"]):
    """Asks for the tokens of a text, or of a chat as its template writes it.

    adds_special: include the special tokens that the bundle adds to a text; a chat has them
        already.
    """

    prompt: str | Chat
    adds_special: bool = True


@dataclass(frozen=True, slots=True)
class DetokenizeJob(Job[str]):
    """Asks for the text of tokens."""

    token_ids: TokenIds


@dataclass(frozen=True, slots=True)
class TokenizeResult:
    """The ids of tokens, and how each is written."""

    token_ids: TokenIds
    token_texts: tuple[str, ...]


def describe_tokens(tokenizer: Tokenizer, token_ids: Sequence[int]) -> TokenizeResult:
    """Return tokens with their texts."""
    special = tokenizer.special_tokens
    texts = (
        special.get(token_id) or token_text(tokenizer.bytes_or_id(token_id))
        for token_id in token_ids
    )
    return TokenizeResult(tuple(token_ids), tuple(texts))


def detokenize(tokenizer: Tokenizer, token_ids: Sequence[int]) -> str:
    """Return the text of tokens; special ones have none. Raises RequestError for ids that are none
    of the model's.
    """
    for token_id in token_ids:
        if not 0 <= token_id < tokenizer.vocab_size:
            message = f"token ids must be between 0 and {tokenizer.vocab_size - 1}"
            raise RequestError("tokens", token_id, message)
    return tokenizer.decode(token_ids)


@dataclass(frozen=True, slots=True)
class CompletionJob(StreamedJob["list[CompletionDelta]", "CompletionDelta"]):
    """Asks for completions of each prompt.

    prompts: text, token ids or chats. Ids are taken as they are: a start token comes before a
        text, not before ids.
    num_samples: completions of a prompt; under beam search its `num_hypotheses` count instead.
    includes_stop: a text that ends with one of `stop`, or with a stop token, has it.
    echo: begin with the prompt, whose tokens are reported if the completion's are.
    returns_token_ids: report the ids of prompts and completions.
    streams: deltas are wanted as early as they are certain.
    attention_queries: attention weights that are wanted of the best completion of each run.
    """

    request_id: str
    prompts: tuple[str | tuple[int, ...] | Chat, ...]
    decoding: Decoding = DEFAULT_DECODING
    num_samples: int = 1
    stop: tuple[str, ...] = ()
    includes_stop: bool = False
    echo: bool = False
    returns_token_ids: bool = False
    streams: bool = False
    attention_queries: tuple[AttentionQuery, ...] = ()

    @property
    def num_choices(self) -> int:
        """Count the completions of each prompt."""
        beam = self.decoding.beam
        return beam.num_hypotheses if beam else self.num_samples

    @property
    def num_completions(self) -> int:
        return len(self.prompts) * self.num_choices


@dataclass(frozen=True, slots=True)
class TokenText:
    """A token and its text.

    token: its bytes; its id if the model's tokenizer has none of that id.
    logprob: None of a prompt's first token if nothing comes before it.
    top: the likeliest tokens and their log-probabilities.
    offset: characters of the completion before it.
    """

    token: BytesOrId
    logprob: float | None
    top: tuple[tuple[BytesOrId, float], ...]
    offset: int

    @property
    def text(self) -> str:
        return token_text(self.token)


@dataclass(frozen=True, slots=True)
class CompletionDelta:
    """The next piece of one completion; the one with a `finish_reason` is its last.

    index: prompt by prompt, the choices of a prompt together.
    num_generated_tokens: so far.
    reasoning: what is thought before the text, of models that tell them apart.
    score: with the last piece of a hypothesis, what it was ranked by.
    attention_maps: with the last piece, one for each query of the job.
    token_ids: of the piece, the stop token included; None unless they are asked for.
    prompt_token_ids: likewise, with the first piece.
    """

    index: int
    text: str
    tokens: tuple[TokenText, ...] = ()
    finish_reason: FinishReason | None = None
    num_prompt_tokens: int = 0
    num_generated_tokens: int = 0
    reasoning: str = ""
    score: float | None = None
    attention_maps: tuple[AttentionMap, ...] = ()
    token_ids: TokenIds | None = None
    prompt_token_ids: TokenIds | None = None


Deltas = AsyncGenerator[CompletionDelta, None]


def join_deltas(deltas: Sequence[CompletionDelta]) -> CompletionDelta:
    """Return the deltas of one completion as one."""
    return replace(
        deltas[-1],
        text="".join(delta.text for delta in deltas),
        reasoning="".join(delta.reasoning for delta in deltas),
        tokens=tuple(token for delta in deltas for token in delta.tokens),
        token_ids=None
        if deltas[-1].token_ids is None
        else tuple(token_id for delta in deltas for token_id in delta.token_ids or ()),
        prompt_token_ids=deltas[0].prompt_token_ids,
    )


async def collect(deltas: Deltas, num_completions: int) -> list[CompletionDelta]:
    """Return whole completions, each as one delta, in the order of their indices."""
    pieces: list[list[CompletionDelta]] = [[] for _ in range(num_completions)]
    async with aclosing(deltas):
        async for delta in deltas:
            pieces[delta.index].append(delta)
    return [join_deltas(completion) for completion in pieces]


@dataclass(frozen=True, slots=True)
class TextPair:
    """Two texts that are read as one: a question and what may answer it."""

    first: str
    second: str

    def __len__(self) -> int:
        return len(self.first) + len(self.second)


EncodeInput = str | TokenIds | TextPair


@dataclass(frozen=True, slots=True)
class EncodeJob(Job["Encodings"]):
    """Asks for the vector of each input.

    inputs: texts, pairs of texts, or token ids. Ids are taken as they are: special tokens come
        around texts, not around ids.
    decoding: of it only who asks, how urgently, and how long there is.
    max_tokens: longer inputs are cut to so many, special ones included; 0 cuts them to what the
        model reads. None refuses those that are longer than that.
    prompt_name: which of the model's prompts comes before each text; None for its default.
    dimensions: so many numbers of each embedding, scaled to length 1 if the model's own are.
    top_k: number of likeliest words in the place of each mask; None if they are not wanted.
    attention_queries: attention weights that are wanted of each input.
    """

    request_id: str
    inputs: tuple[EncodeInput, ...]
    decoding: Decoding = DEFAULT_DECODING
    max_tokens: int | None = None
    prompt_name: str | None = None
    dimensions: int | None = None
    top_k: int | None = None
    attention_queries: tuple[AttentionQuery, ...] = ()


@dataclass(frozen=True, slots=True)
class Entity:
    """A part of a text, its label and its probability. start, end: in characters of the input (not
    bytes), from 0, without the one at `end`.
    """

    text: str
    start: int
    end: int
    label: str
    score: float


@dataclass(frozen=True, slots=True)
class MaskedWord:
    """A token in the place of a mask, with its probability. sequence: the whole text with it."""

    score: float
    token: int
    token_str: str
    sequence: str


Entities = tuple[Entity, ...]  # of one input
MaskedWords = tuple[tuple[MaskedWord, ...], ...]  # of one input: for each mask, the likeliest first


@dataclass(frozen=True, slots=True)
class Encodings:
    """The answers. values: f32 [inputs, width], embeddings or scores of labels; width 0 of other
    models. num_tokens: read of each input. attention_maps: of each input one for each query of the
    job. entities, masked_words: of each input, from models of the tasks classify-tokens and
    fill-mask.
    """

    values: Matrix
    num_tokens: tuple[int, ...]
    attention_maps: tuple[tuple[AttentionMap, ...], ...] = ()
    entities: tuple[Entities, ...] = ()
    masked_words: tuple[MaskedWords, ...] = ()

    @property
    def num_tokens_in_all(self) -> int:
        return sum(self.num_tokens)
