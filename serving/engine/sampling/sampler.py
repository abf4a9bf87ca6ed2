"""Chooses the next token of rows that do not search: drawn, after temperature and filters, or the
likeliest.
"""

import numpy as np

from serving.arrays import Array
from serving.engine.generation import Generation
from serving.engine.rows import Follower
from serving.engine.sampling.draws import NUM_PARAMS, Draws, column_of
from serving.engine.sampling.randomness import Uniforms
from serving.engine.sampling.whole_rows import WholeRows
from serving.engine.sampling.window import draw_from_window
from serving.engine.scores import Choices, Chosen, Edited, Scores


class Sampler(Follower):
    """Remembers each row's parameters and random numbers.

    is_sampled: bool [slots], the rows that draw.
    """

    def __init__(self, slots: int, vocab_size: int, max_new_tokens: int) -> None:
        self._vocab_size = vocab_size
        self.is_sampled = np.zeros(slots, bool)
        self._whole_rows = WholeRows(vocab_size)
        self._params = np.zeros((NUM_PARAMS, slots))
        self._uniforms = Uniforms()
        self._numbers = np.zeros((slots, max_new_tokens, 2))

    def admit(self, row: int, generation: Generation) -> None:
        params = generation.request.sampling
        self.is_sampled[row] = not params.is_greedy
        if params.is_greedy:
            return
        self._params[:, row] = column_of(params, self._vocab_size)
        count = generation.max_new_tokens
        self._numbers[row, :count] = self._uniforms.draw(generation.seed, count)

    def copy(self, source: int, target: int) -> None:
        self.is_sampled[target] = self.is_sampled[source]
        if self.is_sampled[source]:  # beam search copies rows at every step, and none is sampled
            self._params[:, target] = self._params[:, source]
            self._numbers[target] = self._numbers[source]

    def move(self, source: int, target: int) -> None:
        self.copy(source, target)
        self.forget(source)

    def forget(self, row: int) -> None:
        self.is_sampled[row] = False

    def choose(self, scores: Scores, num_generated: Array) -> Choices:
        """num_generated: i64 [rows], how many tokens each row has drawn before."""
        choices = Choices(scores.top_ids[:, 0].copy(), scores.top_logp[:, 0].copy())
        is_drawn = self.is_sampled[: scores.num_rows]
        if scores.chosen is not None:
            _take(choices, scores.chosen)
            is_drawn = is_drawn & ~scores.chosen.is_chosen
        changed = drawn = np.flatnonzero(is_drawn)
        if scores.edited is not None:
            is_edited = scores.edited.is_edited
            self._choose_edited(scores.edited, num_generated, choices.token_ids)
            changed, drawn = np.flatnonzero(is_drawn | is_edited), drawn[~is_edited[drawn]]
        if len(drawn):
            draws = self.draws(drawn, num_generated[drawn])
            choices.token_ids[drawn] = self._draw(scores, drawn, draws)
        if len(changed):
            choices.logprobs[changed] = scores.of_tokens(changed, choices.token_ids[changed])
        return choices

    def _choose_edited(self, edited: Edited, num_generated: Array, token_ids: Array) -> None:
        """Choose for rows whose scores were edited; dead ones keep any token."""
        is_sampled = self.is_sampled[: len(token_ids)]
        is_alive = edited.is_edited & ~edited.is_dead
        greedy = np.flatnonzero(is_alive & ~is_sampled)
        drawn = np.flatnonzero(is_alive & is_sampled)
        if len(greedy):
            token_ids[greedy] = edited.logp[greedy].argmax(axis=1)
        if len(drawn):
            window = np.empty((len(drawn), 0), np.int64)
            proposals = np.full(len(drawn), np.inf)
            draws = self.draws(drawn, num_generated[drawn])
            token_ids[drawn] = self._whole_rows.draw(edited.logp, drawn, window, proposals, draws)

    def _draw(self, scores: Scores, rows: Array, draws: Draws) -> Array:
        """Draw from the window where that can tell, else from whole rows; i64 [rows]."""
        every = slice(None) if len(rows) == scores.num_rows else rows
        top_ids = scores.top_ids[every]
        ranks, proposals = draw_from_window(
            scores.top_logp[every], self._vocab_size, draws, scores.excluded_probability(rows)
        )
        token_ids: Array = top_ids[np.arange(len(rows)), ranks]
        left = np.flatnonzero(ranks < 0)
        if len(left):
            logp = scores.logp_of(rows[left])
            token_ids[left] = self._whole_rows.draw(
                logp, rows[left], top_ids[left], proposals[left], draws.of(left)
            )
        return token_ids

    def draws(self, rows: Array, num_generated: Array) -> Draws:
        """Return what rows draw with that have drawn so many tokens before, i64 [len(rows)]."""
        numbers = self._numbers[rows, num_generated]
        return Draws(self._params[:, rows], numbers[:, 0], numbers[:, 1])


def _take(choices: Choices, chosen: Chosen) -> None:
    """Take what a device has chosen."""
    rows = np.flatnonzero(chosen.is_chosen)
    choices.token_ids[rows] = chosen.token_ids[rows]
    choices.logprobs[rows] = chosen.logprobs[rows]
