"""The naive sampler, which tests compare with, against Hugging Face's filters."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation import logits_process as hugging_face

from serving.engine.arrays import Array
from serving.requests.parameters import SamplingParams
from tests.serving.engine.decoding.naive_sampling import distribution
from tests.serving.engine.decoding.test_sampling import (
    filter_values,
    is_a_close_call,
    random_logp,
    sampling_params,
)


def warp(logp: Array, params: SamplingParams) -> Array:
    """Return what Hugging Face's warpers leave of one row, in its order of them."""
    warpers: list[hugging_face.LogitsProcessor] = [
        hugging_face.TemperatureLogitsWarper(params.temperature)
    ]
    if params.top_k:
        warpers.append(hugging_face.TopKLogitsWarper(params.top_k))
    if params.top_p < 1:
        warpers.append(hugging_face.TopPLogitsWarper(params.top_p))
    if params.min_p:
        warpers.append(hugging_face.MinPLogitsWarper(params.min_p))
    if params.typical_p < 1:
        warpers.append(hugging_face.TypicalLogitsWarper(params.typical_p))
    scores = torch.from_numpy(logp.astype(np.float64))[None]
    for warper in warpers:
        scores = warper(torch.zeros((1, 1), dtype=torch.long), scores)
    return scores[0].softmax(-1).numpy()


@settings(max_examples=300)
@given(seed=st.integers(0, 2**32), spread=st.floats(0.01, 12), filters=filter_values)
def test_the_naive_sampler_keeps_what_hugging_face_keeps(
    seed: int, spread: float, filters: dict[str, float]
) -> None:
    logp = random_logp(np.random.default_rng(seed), 300, spread)
    params = sampling_params(filters)
    expected = warp(logp, params)
    is_equal = distribution(logp, params) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert is_equal or is_a_close_call(logp, filters, expected)
