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
        self._num_drawn = np.zeros(slots, np.int64)
        self._exponents = np.ones(slots)
        self._top_k = np.zeros(slots, np.int64)
        self._top_p = np.ones(slots)
        self._uniforms = np.zeros((slots, max_new_tokens))
        self._columns: tuple[Array, ...] = (
            self._is_sampled,
            self._num_drawn,
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
        self._num_drawn[row] = 0
        self._exponents[row] = 1 / max(params.temperature, MIN_TEMPERATURE)
        self._top_k[row] = min(params.top_k or self._vocab_size, self._vocab_size)
        self._top_p[row] = params.top_p
        count = generation.max_new_tokens
        self._uniforms[row, :count] = uniforms(generation.seed, 0, count)

    def move(self, source: int, target: int) -> None:
        for column in self._columns:
            column[target] = column[source]

    def choose(self, scores: Scores) -> Choices:
        token_ids = scores.top_ids[:, 0].copy()
        logprobs = scores.top_logp[:, 0].copy()
        rows = np.flatnonzero(self._is_sampled[: len(token_ids)])
        if len(rows):
            token_ids[rows] = draw_tokens(scores, rows, self._next_draws(rows))
            logprobs[rows] = scores.logp[rows, token_ids[rows]]
        return Choices(token_ids, logprobs)

    def _next_draws(self, rows: Array) -> Draws:
        numbers = self._uniforms[rows, self._num_drawn[rows]]
        self._num_drawn[rows] += 1
        return Draws(self._exponents[rows], self._top_k[rows], self._top_p[rows], numbers)
