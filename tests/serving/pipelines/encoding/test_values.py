"""Logits become scores and embeddings become shorter, each row by itself."""

import numpy as np
import pytest

from serving.bundle.manifest import Activation
from serving.errors import RequestError
from serving.pipelines.encoding import activated, shortened

LOGITS = np.array([[1.0, -2.0, 0.5], [900.0, -900.0, 0.0]], np.float32)


def test_scores_of_labels() -> None:
    softmax = activated(LOGITS, Activation.SOFTMAX)
    exact = np.exp(LOGITS[0].astype(float)) / np.exp(LOGITS[0].astype(float)).sum()
    assert np.allclose(softmax[0], exact, atol=1e-7) and softmax[1].tolist() == [1, 0, 0]
    sigmoid = activated(LOGITS, Activation.SIGMOID)
    assert np.allclose(sigmoid[0], 1 / (1 + np.exp(-LOGITS[0].astype(float))), atol=1e-7)
    assert sigmoid[1].tolist() == [1, 0, 0.5]
    assert activated(LOGITS, Activation.NONE).tolist() == LOGITS.tolist()


def test_shorter_embeddings_have_length_1_where_the_whole_ones_do() -> None:
    whole = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    short = shortened(whole, 5, is_normalised=True)
    assert short.shape == (3, 5) and np.allclose(np.linalg.norm(short, axis=1), 1)
    assert np.allclose(short / short[:, :1], whole[:, :5] / whole[:, :1], rtol=1e-5)
    assert shortened(whole, 5, is_normalised=False).tolist() == whole[:, :5].tolist()
    assert shortened(np.zeros((1, 8), np.float32), 4, True).tolist() == [[0] * 4]
    alone = shortened(whole[1:2], 5, is_normalised=True)
    assert alone.tobytes() == short[1:2].tobytes()
    for wrong in (0, 9):
        with pytest.raises(RequestError, match="from 1 to 8"):
            shortened(whole, wrong, is_normalised=True)
