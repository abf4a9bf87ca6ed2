"""Sampling as it is defined, one row at a time over the whole vocabulary.

The engine never runs this. It is here to be read first: the other files of this folder draw from
the same distribution, exactly, without sorting or summing a vocabulary at every step, and are
tested against it.
"""

import numpy as np

from serving.engine.arrays import Array
from serving.requests.parameters import SamplingParams


def distribution(logp: Array, params: SamplingParams) -> Array:
    """Return how likely each token is to be drawn, f64 [vocabulary], of log-probabilities."""
    probabilities = _normalise(np.exp(logp.astype(np.float64) / params.temperature))
    if params.top_k:
        probabilities = _normalise(
            probabilities * (probabilities >= np.sort(probabilities)[-params.top_k :][0])
        )
    if params.top_p < 1:
        probabilities = _normalise(
            probabilities * _is_among_first(probabilities, -probabilities, params.top_p)
        )
    if params.min_p:
        probabilities = _normalise(
            probabilities * (probabilities >= params.min_p * probabilities.max())
        )
    if params.typical_p < 1:
        surprisal = -np.log(
            probabilities, out=np.full_like(probabilities, -np.inf), where=probabilities > 0
        )
        distance = abs(surprisal - _entropy(probabilities))
        probabilities = _normalise(
            probabilities * _is_among_first(probabilities, distance, params.typical_p)
        )
    return probabilities


def _is_among_first(probabilities: Array, keys: Array, enough: float) -> Array:
    """Tell which tokens come, by ascending keys, before the others hold enough probability."""
    order = np.argsort(keys, kind="stable")
    before = probabilities[order].cumsum() - probabilities[order]
    is_among = np.empty(len(order), bool)
    is_among[order] = before < enough
    return is_among


def _entropy(probabilities: Array) -> float:
    positive = probabilities[probabilities > 0]
    return float(-(positive * np.log(positive)).sum())


def _normalise(weights: Array) -> Array:
    normalised: Array = weights / weights.sum()
    return normalised
