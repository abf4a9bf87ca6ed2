"""The tokens of a beam search as a tree, its finished hypotheses, and how beams are ranked.

The rules are those of Hugging Face's `generate`, so that the two can be compared.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Optional

import numpy as np

from serving.arrays import Array
from serving.engine.decoding.scores import Scores, best_of_all
from serving.parameters import BeamParams
from serving.request import FinishReason, Hypothesis, TokenEvent

LEAST_COVERAGE = 1e-10  # keeps the logarithm of a source token that nothing attends to finite


class Node:
    """Holds a token of a hypothesis; hypotheses that begin alike share their first nodes."""

    __slots__ = ("depth", "event", "parent")

    def __init__(self, event: TokenEvent, parent: Optional["Node"]) -> None:
        self.event, self.parent = event, parent
        self.depth: int = parent.depth + 1 if parent else 1


def tokens_until(node: Node | None, depth: int = 0) -> list[TokenEvent]:
    """List the tokens after the first `depth`, in order."""
    tokens = []
    while node is not None and node.depth > depth:
        tokens.append(node.event)
        node = node.parent
    return tokens[::-1]


def common_node(nodes: Sequence[Node | None]) -> Node | None:
    """Find the last node that all have in common; None if there is none."""
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
class Ended:
    """Holds a hypothesis that has ended.

    end: the stop token's event; None where the length ended it.
    likelihood: its score but for the coverage penalty.
    """

    node: Node | None
    likelihood: float
    score: float
    reason: FinishReason
    end: TokenEvent | None = None

    def as_hypothesis(self) -> Hypothesis:
        logprob = self.end.logprob if self.end else None
        return Hypothesis(tuple(tokens_until(self.node)), self.score, self.reason, logprob)


@dataclass(frozen=True, slots=True)
class Pool:
    """Holds the best hypotheses that have ended; those that fail a constraint come last.

    Coverage ranks them but has no say in when the search may stop: a beam that goes on long past
    the end of its translation covers most.
    """

    params: BeamParams
    max_new_tokens: int
    ended: tuple[Ended, ...] = ()

    @property
    def is_full(self) -> bool:
        return len(self.ended) >= self.params.num_enough

    @property
    def capacity(self) -> int:
        """Return how many hypotheses are kept."""
        return max(self.params.num_enough, self.params.num_hypotheses)

    def rated(
        self,
        logprob: float,
        num_tokens: int,
        node: Node | None,
        reason: FinishReason,
        end: TokenEvent | None = None,
    ) -> Ended:
        """Score a hypothesis that ends. num_tokens: generated ones, the stop token included."""
        score = likelihood = self._likelihood(logprob, num_tokens)
        if self.params.coverage_penalty:
            score += self.params.coverage_penalty * _coverage(node, end)
        return Ended(node, likelihood, score, reason, end)

    def joined_by(self, new: Sequence[Ended]) -> "Pool":
        """Take in all that has ended in a step: an older one goes before its equals."""
        if not new:
            return self
        ranked = sorted((*self.ended, *new), key=_rank)
        return replace(self, ended=tuple(ranked[: self.capacity]))

    def is_final(self, best_logprob: float, num_tokens: int) -> bool:
        """Tell whether the search may stop, given the likeliest beam that goes on."""
        if not self.is_full:
            return False
        if self.params.early_stopping is True:
            return True
        if self.params.early_stopping == "never":
            return not self.can_improve(best_logprob, num_tokens)
        return self._likelihood(best_logprob, num_tokens) <= self._least_likelihood

    def can_improve(self, logprob: float, num_tokens: int) -> bool:
        """Tell whether a beam may still end better than the worst that a full pool keeps, if no
        token adds to its score.
        """
        longest = self.params.length_penalty > 0
        length = self.max_new_tokens if longest else num_tokens
        return self._likelihood(logprob, length) > self._least_likelihood

    @property
    def _least_likelihood(self) -> float:
        return min(each.likelihood for each in self.ended)

    def _likelihood(self, logprob: float, num_tokens: int) -> float:
        length = max(num_tokens + self.params.num_counted, 1)
        return float(logprob / length**self.params.length_penalty)


def _rank(ended: Ended) -> tuple[bool, float]:
    return ended.reason is FinishReason.CONSTRAINT, -ended.score


def _coverage(node: Node | None, end: TokenEvent | None) -> float:
    """Sum log(min(attention received, 1)) over source tokens: Wu et al. 2016, equation 14."""
    rows = [each for each in _attentions(node, end) if each is not None]
    received = np.sum(rows, axis=0, dtype=np.float64)
    return math.fsum(np.log(np.clip(received, LEAST_COVERAGE, 1.0)))


def _attentions(node: Node | None, end: TokenEvent | None) -> Iterator[Array | None]:
    if end is not None:
        yield end.alignment
    yield from (token.alignment for token in tokens_until(node))


def best_tokens(scores: Scores, rows: Array, count: int) -> tuple[Array, Array]:
    """Return values f64 and token ids i64, each [len(rows), count], best first: what processors
    have made of the log-probabilities, where they have. A token that must not come has -inf.
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
    """Rank the window by its new values. It suffices where none outside it has risen, and as many
    of it as are asked for are no worse than all outside were.
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
