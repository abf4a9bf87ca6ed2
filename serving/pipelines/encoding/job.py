"""Holds what the protocols ask of a model that only encodes, and its answers.

Plain values: they cross to another process when another worker group serves the model.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from serving.parameters import TokenIds
from serving.pipelines.decoding import PLAIN, Decoding
from serving.pipelines.seen import SeenAttention
from serving.request import Look

Matrix = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True, slots=True)
class Pair:
    """Holds two texts that are read as one: a question and what may answer it."""

    first: str
    second: str

    def __len__(self) -> int:
        return len(self.first) + len(self.second)


Input = str | TokenIds | Pair


@dataclass(frozen=True, slots=True)
class EncodeJob:
    """Asks for the vector of each input.

    inputs: texts, pairs of texts, or token ids. Ids are taken as they are: special tokens come
        around texts, not around ids.
    decoding: of it only who asks, how urgently, and how long there is.
    max_tokens: longer inputs are cut to so many, special ones included; 0 cuts them to what the
        model reads. None refuses those that are longer than that.
    prompt_name: which of the model's prompts comes before each text; None for its default.
    dimensions: so many numbers of each embedding, scaled to length 1 if the model's own are.
    looks: what the tokens of each input look at is wanted.
    """

    request_id: str
    inputs: tuple[Input, ...]
    decoding: Decoding = PLAIN
    max_tokens: int | None = None
    prompt_name: str | None = None
    dimensions: int | None = None
    looks: tuple[Look, ...] = ()


@dataclass(frozen=True, slots=True)
class Encodings:
    """Holds the answers. values: f32 [inputs, width], embeddings or scores of labels. num_tokens:
    read of each input. seen: of each input what each look of the job saw.
    """

    values: Matrix
    num_tokens: tuple[int, ...]
    seen: tuple[tuple[SeenAttention, ...], ...] = ()

    @property
    def num_tokens_in_all(self) -> int:
        return sum(self.num_tokens)
