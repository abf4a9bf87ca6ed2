"""Scores predictions of a text: bits per byte, which do not depend on a model's tokenizer,
and perplexity per token, which does.

The text is one stream of documents, each with its </s>. A window slides over it by half of what the
model can read: every token is predicted once, all but the first half window from at least half a
window of what stands before it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from models.conventions import AddedTokens
from models.data.tokenizer import encode_all

MOST_READ = 1024  # tokens; models that can read more are scored so


@dataclass(frozen=True)
class Window:
    """Tokens in the order of the text; the first `num_known` are only read."""

    token_ids: list[int]
    num_known: int


# Of alike windows: minus the log-probabilities of what is not known [windows, tokens].
Nats = Callable[[Sequence[Window]], NDArray[np.float64]]


@dataclass(frozen=True)
class DocumentScore:
    """bits: that all of its tokens take."""

    bytes: int
    bits: float


@dataclass(frozen=True)
class ProseScore:
    """window, stride: in tokens. by_document: in the order in which they were given."""

    documents: int
    bytes: int
    tokens: int
    bits_per_byte: float
    perplexity: float
    window: int
    stride: int
    by_document: tuple[DocumentScore, ...]

    def as_sentence(self) -> str:
        return (
            f"{self.documents} documents, {self.bytes:,} bytes, {self.tokens:,} tokens;"
            f" windows of {self.window} tokens that advance by {self.stride}."
        )


@dataclass(frozen=True)
class Reader:
    """Shows texts as a language model sees them. most_read: tokens, its prefix included."""

    tokenizer: Tokenizer
    added: AddedTokens
    most_read: int

    def score(self, documents: list[str], nats: Nats) -> ProseScore:
        """Score the documents, which hold some text, by what `nats` says of windows of them."""
        prefix, end = self.added.prompt_prefix, self.added.stop[:1]
        texts = [[*ids, *end] for ids in encode_all(self.tokenizer, documents)]
        stream = [token for text in texts for token in text]
        window = min(self.most_read, MOST_READ) - len(prefix) + 1  # the last one is not read
        stride = max(1, window // 2)
        num_unseen = 0 if prefix else 1
        cut = windows(stream, window, stride, num_unseen)
        parts = [nats(list(alike)).ravel() for _, alike in groupby(cut, key=_shape)]
        costs = np.concatenate([np.zeros(num_unseen), *parts]) / math.log(2)
        ends = list(accumulate(map(len, texts)))[:-1]
        sizes = [len(document.encode()) for document in documents]
        total, tokens, num_bytes = costs.sum(), len(stream) - num_unseen, sum(sizes)
        return ProseScore(
            documents=len(documents),
            bytes=num_bytes,
            tokens=tokens,
            bits_per_byte=round(total / num_bytes, 4),
            perplexity=round(2 ** (total / tokens), 3),
            window=window,
            stride=stride,
            by_document=tuple(
                DocumentScore(size, round(float(bits.sum()), 1))
                for size, bits in zip(sizes, np.split(costs, ends), strict=True)
            ),
        )


def windows(stream: list[int], length: int, stride: int, num_unseen: int) -> list[Window]:
    """Cut a stream so that each token is predicted once, but for the first `num_unseen`."""
    found = [Window(stream[:length], num_unseen)]
    end = length
    while end < len(stream):
        known, end = end, min(end + stride, len(stream))
        start = max(0, end - length)
        found.append(Window(stream[start:end], known - start))
    return found


def table(scores: dict[str, ProseScore]) -> str:
    """Write a Markdown table of scores by name."""
    rows = ["| | bits per byte | perplexity per token |", "|---|---:|---:|"]
    rows += [f"| {n} | {s.bits_per_byte:.3f} | {s.perplexity:.2f} |" for n, s in scores.items()]
    return "\n".join(rows)


def _shape(window: Window) -> tuple[int, int]:
    return len(window.token_ids), window.num_known
