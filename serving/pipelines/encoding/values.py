"""Turns what a graph gives into what is answered: scores of logits, shorter embeddings.

Every row is computed by itself, so that none depends on what was asked for beside it.
"""

import numpy as np

from serving.bundle.manifest import Activation
from serving.errors import RequestError
from serving.pipelines.encoding.job import Matrix


def activated(logits: Matrix, activation: Activation) -> Matrix:
    """Return the scores of logits, f32 [texts, labels]."""
    exact = logits.astype(np.float64)
    if activation is Activation.SIGMOID:
        exact = 0.5 * (1.0 + np.tanh(0.5 * exact))  # never overflows
    elif activation is Activation.SOFTMAX:
        exact = np.exp(exact - exact.max(axis=1, keepdims=True))
        exact /= exact.sum(axis=1, keepdims=True)
    return exact.astype(np.float32)


def shortened(embeddings: Matrix, dimensions: int, is_normalised: bool) -> Matrix:
    """Return the first numbers of embeddings, f32 [texts, dimensions], as models that are trained
    for it mean them: Matryoshka representation learning, Kusupati et al., 2022.

    is_normalised: they have length 1, and the shorter ones get it again.
    """
    if not 1 <= dimensions <= embeddings.shape[1]:
        message = f"must be from 1 to {embeddings.shape[1]}, what the model has"
        raise RequestError("dimensions", dimensions, message)
    exact = embeddings[:, :dimensions].astype(np.float64)
    if is_normalised:
        lengths = np.sqrt((exact * exact).sum(axis=1, keepdims=True))
        exact /= np.maximum(lengths, np.finfo(np.float32).tiny)
    return exact.astype(np.float32)
