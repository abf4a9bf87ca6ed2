"""The tokens of a beam search as a tree, its finished hypotheses, and the ranking of beams.

The rules are those of Hugging Face's `generate`, so that the results can be compared.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Optional

import numpy as np

from serving.engine.arrays import Array
from serving.engine.decoding.scores import Scores, best_of_all
from serving.requests.parameters import BeamParams
from serving.requests.request import FinishReason, Hypothesis, OutputTokens, TokenEvent

LEAST_COVERAGE = 1e-10  # keeps the logarithm finite for a source token without attention


class Node:
    """A token of a hypothesis. Hypotheses with the same beginning share their first nodes."""

    __slots__ = ("depth", "event", "parent")

    def __init__(self, event: TokenEvent, parent: Optional["Node"]) -> None:
        self.event, self.parent = event, parent
        self.depth: int = parent.depth + 1 if parent else 1


def tokens_until(node: Node | None, depth: int = 0) -> list[TokenEvent]:
    """Return the tokens after the first `depth`, in order."""
    tokens = []
    while node is not None and node.depth > depth:
        tokens.append(node.event)
        node = node.parent
    return tokens[::-1]


def common_node(nodes: Sequence[Node | None]) -> Node | None:
    """Return the last node that all hypotheses share, or None."""
    least = min(node.depth if node else 0 for node in nodes)
    raised = {_ancestor(node, least) for node in nodes}
    while len(raised) > 1:
        raised = {node.parent if node else None for node in raised}
    return raised.pop()


def _ancestor(node: Node | None, depth: int) -> Node | None:
    while node is not None and node.depth > depth:
        node = node.parent
    return node


@dataclass(frozen=True, slots=True)
class FinishedHypothesis:
    """A finished hypothesis.

    end: the event of the stop token; None if the length limit ended it.
    likelihood: its score without the coverage penalty.
    """

    node: Node | None
    likelihood: float
    score: float
    reason: FinishReason
    end: TokenEvent | None = None

    def to_hypothesis(self) -> Hypothesis:
        stop = (self.end.logprob, self.end.token_id) if self.end else (None, None)
        return Hypothesis(
            OutputTokens.from_events(tokens_until(self.node)), self.score, self.reason, *stop
        )


@dataclass(frozen=True, slots=True)
class BeamHypotheses:
    """The best finished hypotheses; those that fail a constraint come last.

    Coverage changes their ranking, but not when the search stops: a beam that continues long past
    the end of its translation has the highest coverage.
    """

    params: BeamParams
    max_new_tokens: int
    finished: tuple[FinishedHypothesis, ...] = ()

    @property
    def is_full(self) -> bool:
        return len(self.finished) >= self.params.num_enough

    @property
    def capacity(self) -> int:
        """Return the number of hypotheses that are kept."""
        return max(self.params.num_enough, self.params.num_hypotheses)

    def score_hypothesis(
        self,
        logprob: float,
        num_tokens: int,
        node: Node | None,
        reason: FinishReason,
        end: TokenEvent | None = None,
    ) -> FinishedHypothesis:
        """Score a finished hypothesis. num_tokens: generated tokens, including the stop token."""
        score = likelihood = self._likelihood(logprob, num_tokens)
        if self.params.coverage_penalty:
            score += self.params.coverage_penalty * _coverage(node, end)
        return FinishedHypothesis(node, likelihood, score, reason, end)

    def add(self, new: Sequence[FinishedHypothesis]) -> "BeamHypotheses":
        """Return the best of these hypotheses and of those that finished in a step; among equal
        scores, older ones come first.
        """
        if not new:
            return self
        ranked = sorted((*self.finished, *new), key=_rank)
        return replace(self, finished=tuple(ranked[: self.capacity]))

    def is_final(self, best_logprob: float, num_tokens: int) -> bool:
        """Return whether the search may stop, given the likeliest live beam."""
        if not self.is_full:
            return False
        if self.params.early_stopping is True:
            return True
        if self.params.early_stopping == "never":
            return not self.can_improve(best_logprob, num_tokens)
        return self._likelihood(best_logprob, num_tokens) <= self._least_likelihood

    def can_improve(self, logprob: float, num_tokens: int) -> bool:
        """Return whether a live beam can still become better than the worst of these hypotheses, if
        further tokens do not increase its score.
        """
        longest = self.params.length_penalty > 0
        length = self.max_new_tokens if longest else num_tokens
        return self._likelihood(logprob, length) > self._least_likelihood

    @property
    def _least_likelihood(self) -> float:
        return min(hypothesis.likelihood for hypothesis in self.finished)

    def _likelihood(self, logprob: float, num_tokens: int) -> float:
        length = max(num_tokens + self.params.num_counted, 1)
        return float(logprob / length**self.params.length_penalty)


def _rank(finished: FinishedHypothesis) -> tuple[bool, float]:
    return finished.reason is FinishReason.CONSTRAINT, -finished.score


def _coverage(node: Node | None, end: TokenEvent | None) -> float:
    """Return the sum of log(min(attention received, 1)) over source tokens (Wu et al. 2016,
    equation 14).
    """
    rows = [attention for attention in _attentions(node, end) if attention is not None]
    received = np.sum(rows, axis=0, dtype=np.float64)
    return math.fsum(np.log(np.clip(received, LEAST_COVERAGE, 1.0)))


def _attentions(node: Node | None, end: TokenEvent | None) -> Iterator[Array | None]:
    if end is not None:
        yield end.alignment
    yield from (token.alignment for token in tokens_until(node))


def best_tokens(scores: Scores, rows: Array, count: int) -> tuple[Array, Array]:
    """Return values f64 and token ids i64, each [len(rows), count], best first: log-probabilities,
    or the edited scores where processors have edited them. Banned tokens have -inf.
    """
    window = scores.top_ids.shape[1]
    if count > window:
        return best_of_all(_all_values(scores, rows), count)
    if scores.edited is None:
        return scores.top_logp[rows, :count].astype(np.float64), scores.top_ids[rows, :count]
    return _best_of_edited(scores, rows, count)


def _all_values(scores: Scores, rows: Array) -> Array:
    values: Array = scores.logp_of(rows)[rows]
    if scores.edited is not None:
        is_edited = scores.edited.is_edited[rows]
        values[is_edited] = scores.edited.logp[rows[is_edited]]
    return values


def _best_of_edited(scores: Scores, rows: Array, count: int) -> tuple[Array, Array]:
    """Rank the window by its edited scores. This is exact if no token outside the window has a
    raised score, and at least `count` tokens of the window are not worse than all outside were.
    """
    assert scores.edited is not None
    ids, values = scores.top_ids[rows].copy(), scores.top_logp[rows].astype(np.float64)
    is_edited = scores.edited.is_edited[rows]
    values[is_edited] = scores.edited.logp[rows[is_edited, None], ids[is_edited]]
    order = np.argsort(-values, axis=1, kind="stable")
    values = np.take_along_axis(values, order, axis=1)[:, :count]
    ids = np.take_along_axis(ids, order, axis=1)[:, :count]
    is_open = is_edited & (
        scores.edited.is_raised[rows] | (values[:, -1] < scores.top_logp[rows, -1])
    )
    if is_open.any():
        values[is_open], ids[is_open] = best_of_all(_all_values(scores, rows[is_open]), count)
    return values, ids
