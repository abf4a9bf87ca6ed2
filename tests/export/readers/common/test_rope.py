"""Tables of rotary position embeddings are those of `transformers`, from files of all versions."""

import math
from typing import Any

import numpy as np
import pytest
from transformers import LlamaConfig, PreTrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from export.readers.common.decoders.families import FAMILIES
from export.readers.common.options import Options
from export.readers.common.rope import read_rotary, rope_section, set_context_length
from models.architectures.registry import parse_config
from tests.export.readers.hugging_face.language_models import LLAMA3, SIZES, YARN

LONG, THETA = 4096, 10000.0
SCALINGS: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 2.5},
    "dynamic": {"rope_type": "dynamic", "factor": 8.0},
    "llama3": LLAMA3 | {"original_max_position_embeddings": 512},
    "yarn": YARN | {"original_max_position_embeddings": 1024},
    "yarn, tuned": YARN
    | {"original_max_position_embeddings": 512, "truncate": False}
    | {"beta_fast": 16.0, "beta_slow": 2.0, "mscale": 1.2, "mscale_all_dim": 0.7},
    "yarn, told how sharp": YARN | {"attention_factor": 1.3, "partial_rotary_factor": 0.5},
    "longrope": {
        "rope_type": "longrope",
        "short_factor": [1.0] * 32,
        "long_factor": [1 + 0.3 * i for i in range(32)],
        "original_max_position_embeddings": 1024,
    },
}


def options(**values: Any) -> Options:
    return Options("config.json", values, [])


@pytest.mark.parametrize("name", SCALINGS)
def test_tables_are_theirs(name: str) -> None:
    rope = {"rope_theta": THETA, **SCALINGS[name]}
    theirs: PreTrainedConfig = LlamaConfig(
        **SIZES | {"max_position_embeddings": LONG, "head_dim": 64}, rope_parameters=dict(rope)
    )
    config = options(max_position_embeddings=LONG, rope_parameters=rope)
    found = read_rotary(config, rope_section(config), 64)
    if name == "default":
        expected, magnitude = THETA ** (-np.arange(0, 64, 2) / 64), 1.0
    else:
        table, magnitude = ROPE_INIT_FUNCTIONS[rope["rope_type"]](theirs, "cpu", seq_len=LONG)
        expected = table.numpy()
    assert config.problems == []
    np.testing.assert_allclose(found.frequencies, expected, rtol=2e-6)
    assert found.magnitude == pytest.approx(magnitude)


def test_short_texts_only_take_the_short_table() -> None:
    rope = SCALINGS["longrope"] | {"rope_theta": THETA}
    config = options(max_position_embeddings=1024, rope_scaling=rope)
    found = read_rotary(config, rope_section(config), 64)
    np.testing.assert_allclose(found.frequencies, THETA ** (-np.arange(0, 64, 2) / 64))
    assert found.magnitude == 1.0


GEMMA3 = {"rope_theta": 500.0, "rope_local_base_freq": 20.0}
GEMMA3_NEW = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 20.0},
}


@pytest.mark.parametrize(
    ("family", "old", "new"),
    [
        ("llama", {"rope_theta": 9.0}, {"rope_theta": 9.0, "rope_type": "default"}),
        (
            "llama",
            {"rope_theta": 100.0, "rope_scaling": {**LLAMA3, "rope_theta": None}},
            LLAMA3,
        ),
        (
            "qwen2",
            {"rope_theta": 9.0, "rope_scaling": {"type": "linear", "factor": 4}},
            {"rope_theta": 9.0, "rope_type": "linear", "factor": 4.0},
        ),
        (
            "gpt_neox",
            {"rotary_pct": 0.5, "rotary_emb_base": 77},
            {"rope_theta": 77, "rope_type": "default", "partial_rotary_factor": 0.5},
        ),
        (
            "phi",
            {"partial_rotary_factor": 0.25, "rope_theta": 9.0},
            {"rope_theta": 9.0, "rope_type": "default", "partial_rotary_factor": 0.25},
        ),
        (
            "gemma3_text",
            GEMMA3 | {"rope_scaling": {"rope_type": "linear", "factor": 8.0}},
            GEMMA3_NEW,
        ),
    ],
)
def test_files_of_all_versions(family: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    sizes = SIZES | {"head_dim": 32}
    configure = FAMILIES[family].configure
    before, now = options(**sizes, **old), options(**sizes, rope_parameters=new)
    assert parse_config(configure(before)) == parse_config(configure(now))
    assert before.problems == now.problems == []


@pytest.mark.parametrize(
    ("rope", "problem"),
    [
        ({"rope_type": "xpos"}, "rope_parameters: rope_type 'xpos' is not supported"),
        ({"rope_type": "linear"}, "rope_parameters: factor is missing"),
        (
            {"rope_type": "longrope", "long_factor": [1.0], "short_factor": [1.0]},
            "rope_parameters: short_factor [1.0] must hold 8 numbers",
        ),
        ({"rope_theta": -2.0}, "rope_parameters: rope_theta -2.0 must be more than 0"),
        ({"rope_theta": math.nan}, "rope_parameters: rope_theta nan is no number to compute with"),
        (
            {"rope_type": "yarn", "factor": 2.0, "beta_fast": 0},
            "rope_parameters: cannot be computed: float division by zero",
        ),
    ],
)
def test_what_is_wrong_is_said(rope: dict[str, Any], problem: str) -> None:
    config = options(max_position_embeddings=64, rope_parameters=rope)
    read_rotary(config, rope_section(config), 16)
    assert config.problems == [f"config.json: {problem}"]


def llama_of(**values: Any) -> Options:
    return options(**SIZES | {"max_position_embeddings": LONG, "head_dim": 64}, **values)


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("place", ["rope_parameters", "rope_scaling"])
def test_a_shorter_context_changes_no_angle(name: str, place: str) -> None:
    config, shortened = (llama_of(**{place: SCALINGS[name], "rope_theta": 9.0}) for _ in "ab")
    set_context_length(shortened, 2048)
    expected, found = (FAMILIES["llama"].configure(each) for each in (config, shortened))
    assert found.pop("context_length") == 2048
    assert expected.pop("context_length") == LONG
    assert found == expected
    assert shortened.problems == []


def test_a_context_that_is_short_enough_takes_the_short_table() -> None:
    config = llama_of(rope_parameters=SCALINGS["longrope"])
    set_context_length(config, 1024)
    found = read_rotary(config, rope_section(config), 64)
    np.testing.assert_allclose(found.frequencies, THETA ** (-np.arange(0, 64, 2) / 64))
    assert found.magnitude == pytest.approx(math.sqrt(1.2)), "as of the whole model"


@pytest.mark.parametrize("length", [1, LONG + 1])
def test_a_context_that_cannot_be(length: int) -> None:
    config = llama_of()
    set_context_length(config, length)
    assert config.problems == [f"context length {length} is not one of 2 to {LONG}"]
