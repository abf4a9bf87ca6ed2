"""Moves the scores of single tokens up or down: logit bias and penalties.

A row keeps a table of the tokens it changes. The tables of all rows are laid end to end, so that a
step changes them with one gather and one scatter, however many rows there are.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np

from serving.arrays import Array
from serving.engine.generation import Generation

BIAS, PENALTY, TOLL = range(3)


class Changes:
    """Changes one row's scores, in this order: adds the bias, divides a positive score and
    multiplies a negative one by the repetition penalty, takes off the toll of presence and
    frequency.

    Tokens of the prompt are penalised for repetition, generated ones for all.
    """

    def __init__(self, generation: Generation, vocab_size: int) -> None:
        params = generation.request.processors
        self._repetition = params.repetition_penalty
        self._presence, self._frequency = params.presence_penalty, params.frequency_penalty
        self.is_beam = generation.request.beam is not None
        biases = dict(params.logit_bias)
        prompt = set(generation.given_ids) if self._repetition != 1 else set()
        token_ids = [*biases, *(prompt - biases.keys())]
        capacity = min(len(token_ids) + generation.max_new_tokens, vocab_size)
        self._index = {token_id: index for index, token_id in enumerate(token_ids)}
        self._token_ids = np.zeros(capacity, np.int64)
        self._token_ids[: len(token_ids)] = token_ids
        self._counts = np.zeros(capacity, np.int64)
        self._columns = np.zeros((3, capacity))
        self._columns[PENALTY] = 1
        self._columns[BIAS, : len(biases)] = list(biases.values())
        self._columns[PENALTY, [self._index[token_id] for token_id in prompt]] = self._repetition

    def __len__(self) -> int:
        return len(self._index)

    @property
    def token_ids(self) -> Array:
        """List the tokens that change, each once; i64 [tokens]."""
        return self._token_ids[: len(self._index)]

    @property
    def columns(self) -> Array:
        """Return bias, penalty and toll of each token; f64 [3, tokens]."""
        return self._columns[:, : len(self._index)]

    def accept(self, token_id: int) -> None:
        if self._repetition == 1 and not self._presence and not self._frequency:
            return
        index = self._index.setdefault(token_id, len(self._index))
        self._token_ids[index] = token_id
        self._counts[index] += 1
        self._columns[PENALTY, index] = self._repetition
        self._columns[TOLL, index] = self._presence + self._frequency * self._counts[index]

    def fork(self) -> "Changes":
        twin = copy(self)
        twin._index = self._index.copy()
        twin._token_ids = self._token_ids.copy()
        twin._counts = self._counts.copy()
        twin._columns = self._columns.copy()
        return twin


@dataclass(frozen=True, slots=True)
class Changed:
    """Holds scores of some rows' tokens, [tokens]: before and after."""

    rows: Array
    token_ids: Array
    before: Array
    after: Array


def change(logp: Array, log_normaliser: Array, changes: Sequence[tuple[int, Changes]]) -> Changed:
    """Compute the changed scores of some rows; `logp` itself is not written.

    Logits are changed where tokens are drawn, log-probabilities under beam search, as Hugging Face
    has it; both come back as log-probabilities. In double precision, so that a score which nothing
    changes comes back the same.
    """
    lengths = [len(each) for _, each in changes]
    rows = np.repeat([row for row, _ in changes], lengths)
    is_beam = np.repeat([each.is_beam for _, each in changes], lengths)
    token_ids = np.concatenate([each.token_ids for _, each in changes])
    bias, penalty, toll = np.concatenate([each.columns for _, each in changes], axis=1)
    shift = np.where(is_beam, 0, log_normaliser[rows]).astype(np.float64)
    before = logp[rows, token_ids]
    scores = before + shift + bias
    scores = np.where(scores < 0, scores * penalty, scores / penalty) - toll
    return Changed(rows, token_ids, before, (scores - shift).astype(np.float32))
