"""The search that draws: temperature, top_k and top_p, in this order; or greedy, row by row."""

import numpy as np

from serving.engine.draws import Draws, draw_tokens
from serving.engine.generation import Generation
from serving.engine.memory import Array
from serving.engine.randomness import uniforms
from serving.engine.search import Choices, Scores

MIN_TEMPERATURE = 1e-4


class Sampling:
    """Remembers each row's parameters and random numbers."""

    def __init__(self, slots: int, vocab_size: int, max_new_tokens: int) -> None:
        self._vocab_size = vocab_size
        self._is_sampled = np.zeros(slots, bool)
        self._exponents = np.ones(slots)
        self._top_k = np.zeros(slots, np.int64)
        self._top_p = np.ones(slots)
        self._uniforms = np.zeros((slots, max_new_tokens))
        self._columns: tuple[Array, ...] = (
            self._is_sampled,
            self._exponents,
            self._top_k,
            self._top_p,
            self._uniforms,
        )

    def admit(self, row: int, generation: Generation) -> None:
        params = generation.request.sampling
        self._is_sampled[row] = not params.is_greedy
        if params.is_greedy:
            return
        self._exponents[row] = 1 / max(params.temperature, MIN_TEMPERATURE)
        self._top_k[row] = min(params.top_k or self._vocab_size, self._vocab_size)
        self._top_p[row] = params.top_p
        count = generation.max_new_tokens
        self._uniforms[row, :count] = uniforms(generation.seed, 0, count)

    def copy(self, source: int, target: int) -> None:
        for column in self._columns:
            column[target] = column[source]

    def move(self, source: int, target: int) -> None:
        self.copy(source, target)

    def forget(self, row: int) -> None:
        self._is_sampled[row] = False

    def choose(self, scores: Scores, num_generated: Array) -> Choices:
        """num_generated: i64 [rows], how many tokens each row has generated so far."""
        token_ids = scores.top_ids[:, 0].copy()
        logprobs = scores.top_logp[:, 0].copy()
        rows = np.flatnonzero(self._is_sampled[: len(token_ids)])
        if len(rows):
            token_ids[rows] = draw_tokens(scores, rows, self._next_draws(rows, num_generated[rows]))
            logprobs[rows] = scores.logp[rows, token_ids[rows]]
        return Choices(token_ids, logprobs)

    def _next_draws(self, rows: Array, num_generated: Array) -> Draws:
        numbers = self._uniforms[rows, num_generated]
        return Draws(self._exponents[rows], self._top_k[rows], self._top_p[rows], numbers)
