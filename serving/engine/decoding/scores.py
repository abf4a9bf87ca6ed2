"""The output of the step graph: the log-probabilities of every row's next token."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from serving.bundle.manifest import Manifest
from serving.engine.arrays import Array
from serving.engine.attention_query import AttentionOutputs

NOTHING = np.zeros(0, np.int64)


class Scores:
    """Log-probabilities of each row's next token.

    top_logp: f32 [rows, window], the likeliest tokens that may be chosen, best first
    top_ids: i64 [rows, window]
    likeliest_logp, likeliest_ids: the same of all tokens, including excluded ones
    log_normaliser: f32 [rows]; log-probabilities plus this value are the model's logits
    attention: for each requested kind f32 [rows, heads, positions]
    num_rows: number of rows
    device_tokens: the tokens that a device has already chosen, or None
    edited: None until a processor has changed a row
    """

    def __init__(
        self,
        scored: Array,
        top_logp: Array,
        top_ids: Array,
        log_normaliser: Array,
        *,
        are_logits: bool = False,
        memory: Array | None = None,
        edited: "Edited | None" = None,
    ) -> None:
        """scored: f32 [rows, at least vocabulary], the graph's output for all tokens that it
            scores: log-probabilities or logits.
        memory: f32 [rows, vocabulary], for the log-probabilities of rows that are read whole.
        """
        self.scored = scored
        self._shift = log_normaliser if are_logits else np.zeros(len(top_ids), np.float32)
        self._memory, self._is_read = memory, np.zeros(len(top_ids), bool)
        self.top_logp, self.top_ids, self.log_normaliser = top_logp, top_ids, log_normaliser
        self.likeliest_logp, self.likeliest_ids = top_logp, top_ids
        self.attention: AttentionOutputs = {}
        self.num_rows = len(top_ids)
        self.device_tokens: DeviceTokens | None = None
        self.edited = edited
        self._excluded = NOTHING

    @property
    def logp(self) -> Array:
        """Return f32 [rows, vocabulary]; -inf for tokens that are not scored, or excluded."""
        return self.logp_of(np.arange(self.num_rows))

    @property
    def is_chosen(self) -> Array:
        """Return the rows for which a device has chosen; bool [rows]."""
        if self.device_tokens is None:
            return np.zeros(self.num_rows, bool)
        return self.device_tokens.is_chosen

    def logp_of(self, rows: Array) -> Array:
        """Return f32 [all rows, vocabulary], valid only for these rows (i64): computing more, or
        copying more from a device, takes time.
        """
        logp, missing = self._whole_rows, np.unique(rows[~self._is_read[rows]])
        if len(missing):
            self._copy_logp(missing, logp)
            self._is_read[missing] = True
            logp[missing[:, None], self._excluded] = -np.inf
        return logp

    def excluded_probability(self, rows: Array) -> Array:
        """Return the total probability of all excluded tokens; f64 [len(rows)]."""
        if not len(self._excluded):
            return np.zeros(len(rows))
        logp = self._values(rows[:, None], self._excluded)
        total: Array = np.exp(logp, dtype=np.float64).sum(axis=1)
        return total

    @property
    def fewest_scored(self) -> int:
        """Return the smallest number of allowed tokens in a row."""
        return int(self.scored.shape[1]) - len(self._excluded)

    def choose_on_host(self, rows: Array) -> None:
        """Ignore the tokens that a device has chosen for these rows, i64."""
        if self.device_tokens is not None:
            self.device_tokens.is_chosen[rows] = False

    def exclude(self, token_ids: Array) -> None:
        """Exclude tokens, i64 ascending, from being chosen, before any other value is read. They
        are still reported with their log-probabilities.
        """
        self._excluded = token_ids

    def of_tokens(self, rows: Array, token_ids: Array) -> Array:
        """Return the log-probability of one token of each row, f32 [len(rows)]."""
        return self._values(rows, token_ids)

    def reported_logprobs(self, rows: Array, token_ids: Array) -> Array:
        """Return the log-probability to report of a chosen token of each row, f32 [len(rows)]."""
        logprobs = self._values(rows, token_ids)
        if self.edited is not None:
            is_reported = self.edited.is_reported[rows]
            edited = self.edited.logp[rows[is_reported], token_ids[is_reported]]
            logprobs[is_reported] = edited
        return logprobs

    @cached_property
    def _whole_rows(self) -> Array:
        return np.empty_like(self.scored) if self._memory is None else self._memory

    def _values(self, rows: Array, token_ids: Array) -> Array:
        """Return the log-probabilities of scored tokens, whether excluded or not."""
        values: Array = self.scored[rows, token_ids] - self._shift[rows]
        return values

    def _copy_logp(self, rows: Array, to: Array) -> None:
        """Write the log-probabilities of all tokens of these rows, i64 ascending, into the same
        rows of an array [all rows, vocabulary]; -inf for tokens that are not scored.
        """
        for row in rows.tolist():
            np.subtract(self.scored[row, : to.shape[1]], self._shift[row], out=to[row])


def best_of_all(values: Array, count: int) -> tuple[Array, Array]:
    """Rank all tokens; among equal values the lower token id comes first, as in the window."""
    num_rows, vocab_size = values.shape
    count = min(count, vocab_size)
    least = np.partition(values, vocab_size - count, axis=1)[:, vocab_size - count]
    ids = np.empty((num_rows, count), np.int64)
    for row in range(num_rows):
        enough = np.flatnonzero(values[row] >= least[row])
        ids[row] = enough[np.argsort(-values[row, enough], kind="stable")[:count]]
    return np.take_along_axis(values, ids, axis=1).astype(np.float64), ids


@dataclass(slots=True)
class Edited:
    """The rows that processors have changed.

    is_edited: bool [rows]
    is_raised: bool [rows]; edited rows in which a score may have risen
    is_dead: bool [rows]; edited rows in which no token is allowed
    is_reported: bool [rows]; edited rows whose scores are log-probabilities, and reported as such
    logp: f32 [rows, vocabulary]; of edited rows the scores to choose by, not normalised, -inf for
        banned tokens; undefined for other rows
    """

    is_edited: Array
    is_raised: Array
    is_dead: Array
    is_reported: Array
    logp: Array


@dataclass(frozen=True, slots=True)
class DeviceTokens:
    """The tokens that a device has chosen.

    is_chosen: bool [rows]; the other arrays are undefined for other rows
    token_ids: i64 [rows]
    logprobs: f32 [rows], the tokens' log-probabilities
    is_dead: bool [rows], in which no token is allowed
    """

    is_chosen: Array
    token_ids: Array
    logprobs: Array
    is_dead: Array


@dataclass(slots=True)
class SampledTokens:
    """One token for each row.

    token_ids: i64 [rows]
    logprobs: f32 [rows], the tokens' log-probabilities
    """

    token_ids: Array
    logprobs: Array


def allocate_window(manifest: Manifest, num_rows: int) -> dict[str, Array]:
    """Return the arrays to which a graph writes the likeliest tokens of each row, by the names of
    its outputs.
    """
    return {
        "top_logp": np.zeros((num_rows, manifest.window), np.float32),
        "top_ids": np.zeros((num_rows, manifest.window), np.int64),
        "log_normaliser": np.zeros(num_rows, np.float32),
    }
