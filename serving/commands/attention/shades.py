"""Says how dark a weight is drawn."""

from enum import StrEnum

import numpy as np

from serving.text.alignment import Array

_DECADES = 3  # of weights that the logarithm tells apart


class Shade(StrEnum):
    """WEIGHT: as it is. ROW: by the largest of its row. LOG: by its logarithm, from 0.001."""

    ROW = "row"
    WEIGHT = "weight"
    LOG = "log"


def shaded(weights: Array, shade: Shade) -> Array:
    """Return how dark each weight is, 0 to 1. weights: [rows, columns]."""
    match shade:
        case Shade.WEIGHT:
            return weights
        case Shade.ROW:
            largest = weights.max(axis=1, keepdims=True)
            return np.asarray(weights / np.maximum(largest, np.finfo(np.float32).tiny))
        case Shade.LOG:
            seen = np.maximum(weights, 10.0**-_DECADES)
            return np.asarray(1 + np.log10(seen) / _DECADES)
