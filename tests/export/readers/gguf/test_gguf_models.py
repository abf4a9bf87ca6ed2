"""Language models from GGUF files compute what the models they were made from do."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from gguf import GGMLQuantizationType as Kind
from transformers import PreTrainedModel

from export.bundling.running import GraphRows
from export.bundling.writer import export_checkpoint
from export.cli import export
from export.readers.gguf.container import count_bits
from export.readers.gguf.reader import read_checkpoint
from export.readers.reading import read_model
from models.checkpoint import Checkpoint, CheckpointError
from models.decoding import teacher_forced_log_probabilities
from models.loading import load_module
from models.safetensors import Arrays
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from serving.text.tokenizer import Tokenizer
from tests.export.readers.gguf.files import write_gguf
from tests.export.readers.hugging_face.language_models import (
    BOS,
    FAMILIES,
    GEMMA3_ROPES,
    SIZES,
    VARIANTS,
    log_probabilities,
    prompts,
    random_model,
)

NAMES = [
    "llama",  # Llama 3's scaling
    "smollm2",  # tied
    "llama linear",
    "llama yarn",
    "mistral",
    "qwen2 without windows",  # biases
    "qwen3",  # norms of queries and keys
    "gemma",
    "phi3",  # projections side by side, LongRoPE
    "gpt2",  # positions, one tensor of queries, keys and values
    "gpt_neox",  # heads that rotate in part
    "phi",  # one norm of both sublayers, a bias of the output
    "arcee",  # no gate
    "bloom",  # positions' biases of scores, a norm of the embedding
    "bloom with 6 heads of 7",
    "cohere",  # one norm of both sublayers, without bias; neighbours rotate
    "ernie4_5",  # neighbours rotate
    "exaone4",  # layers without a window do not rotate
    "exaone4 without windows",
    "falcon",  # one key and value of all heads
    "glm4",  # neighbours rotate, norms on both sides
    "granite",  # multipliers
    "hunyuan_v1_dense",  # norms after rotation
    "mixtral",  # experts
    "olmo",  # norms without weights, limits
    "olmo2",  # norms after sublayers
    "seed_oss",
    "stablelm",  # LayerNorm and a gate
    "starcoder2",
    "starcoder2 without biases",
    "mamba",
    "mamba untied, with biases",
    "mamba2",
    "mamba2 tied, with biases",
]
# What files do not say is as llama.cpp takes it to be.
OLMO_ROPES = {  # with one base
    "full_attention": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 100.0}
    | {"original_max_position_embeddings": 16},
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
}
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
UNSAID: dict[str, dict[str, Any]] = {
    "cohere of GGUF, with norms of heads": VARIANTS["cohere with norms of heads"]
    | {"tie_word_embeddings": True},
    "cohere2 of GGUF": FAMILIES["cohere2"]
    | {"model_type": "cohere2", "num_hidden_layers": 5, "sliding_window_pattern": 4},
    "falcon of GGUF, with two norms": VARIANTS["falcon with groups"] | {"activation": "gelu"},
    "falcon of GGUF, with groups and one norm": VARIANTS["falcon with groups and one norm"]
    | {"rope_parameters": PLAIN_ROPE},
    "gpt_neox of GGUF, one after the other": VARIANTS["gpt_neox one after the other"]
    | {"rope_parameters": PLAIN_ROPE | {"partial_rotary_factor": 0.5}},
    "phi of GGUF with 3 pairs of 20": VARIANTS["phi with 3 pairs of 20"]
    | {"rope_parameters": PLAIN_ROPE | {"partial_rotary_factor": 0.3}},
    "gemma2 of GGUF": FAMILIES["gemma2"] | {"model_type": "gemma2", "query_pre_attn_scalar": 32},
    "gemma3 of GGUF": FAMILIES["gemma3_text"]
    | {"model_type": "gemma3_text", "query_pre_attn_scalar": 32, "num_hidden_layers": 6}
    | {"rope_parameters": GEMMA3_ROPES | {"sliding_attention": {"rope_theta": 10000.0}}}
    | {"layer_types": [*["sliding_attention"] * 5, "full_attention"]},
    "gpt_oss of GGUF": FAMILIES["gpt_oss"] | {"model_type": "gpt_oss", "swiglu_limit": 7.0},
    "olmo3 of GGUF": FAMILIES["olmo3"] | {"model_type": "olmo3", "rope_parameters": OLMO_ROPES},
    "qwen3_moe of GGUF": FAMILIES["qwen3_moe"] | {"model_type": "qwen3_moe", "mlp_only_layers": []},
    "stablelm of GGUF, with all": VARIANTS["stablelm with all"]
    | {"rope_parameters": PLAIN_ROPE | {"partial_rotary_factor": 0.3}},
    "smollm3 of GGUF": SIZES
    | {"model_type": "smollm3", "no_rope_layer_interval": 4, "num_hidden_layers": 4},
}
TOLERANCE = 1e-4  # nats


def largest_error(model: PreTrainedModel, checkpoint: Checkpoint) -> float:
    module = load_module(checkpoint)
    errors = []
    for prompt in prompts(4):
        ids = [BOS, *prompt]
        found = teacher_forced_log_probabilities(module, [], ids).numpy()
        errors.append(np.abs(found - log_probabilities(model, ids)).max())
    return max(errors)


@pytest.mark.parametrize("name", [*NAMES, *UNSAID])
def test_log_probabilities_are_theirs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in UNSAID:
        monkeypatch.setitem(VARIANTS, name, UNSAID[name])
    model = random_model(name)
    assert (
        largest_error(model, read_checkpoint(write_gguf(model, tmp_path / "model.gguf")))
        < TOLERANCE
    )


def test_an_output_that_is_the_table_of_words_is_held_once(tmp_path: Path) -> None:
    """As older files of GPT-2 have it."""
    model = random_model("gpt2")
    table = model.lm_head.weight.detach().numpy()
    path = write_gguf(model, tmp_path / "model.gguf", more={"output.weight": table})
    checkpoint = read_checkpoint(path)
    assert "output.weight" not in checkpoint.weights
    assert largest_error(model, checkpoint) < TOLERANCE


def test_a_whole_factor_of_scores_in_olmo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VARIANTS, "olmo3 of GGUF", UNSAID["olmo3 of GGUF"])
    model = random_model("olmo3 of GGUF")
    factor = 1 + 0.1 * math.log(4.0)  # what YaRN has by itself
    keys: dict[str, Any] = {"olmo2.rope.scaling.attn_factor": factor}
    found = read_checkpoint(write_gguf(model, tmp_path / "model.gguf", **keys))
    assert largest_error(model, found) < TOLERANCE


def test_queries_keys_and_values_may_be_one_tensor(tmp_path: Path) -> None:
    """As in older files of Phi-2."""
    model = random_model("phi")
    exact = read_checkpoint(write_gguf(model, tmp_path / "model.gguf"))
    more = {}
    for layer in range(3):
        attention = model.model.layers[layer].self_attn
        for part in ("weight", "bias"):
            parts = [getattr(each, part) for each in (attention.q_proj, attention.k_proj)]
            joined = torch.cat([*parts, getattr(attention.v_proj, part)]).detach().numpy()
            more[f"blk.{layer}.attn_qkv.{part}"] = joined
    path = write_gguf(model, tmp_path / "fused.gguf", more=more, without=r".*attn_[qkv]\..*")
    found = read_checkpoint(path)
    assert all(np.array_equal(found.weights[name], exact.weights[name]) for name in exact.weights)


def test_what_it_expects_around_texts(tmp_path: Path) -> None:
    path = write_gguf(random_model("smollm2"), tmp_path / "model.gguf")
    checkpoint = read_model(path)
    assert checkpoint.conventions.stop == (2,)
    assert checkpoint.conventions.prompt_prefix == ()
    assert checkpoint.conventions.chat_template == "{{ messages[0]['content'] }}"
    card = checkpoint.files["README.md"].decode()
    assert "# Tiny" in card and "Licence: mit" in card


def test_a_channel_of_harmony_ends_no_text(tmp_path: Path) -> None:
    tokens = ["a", "b", "ab", "<|return|>", "<|call|>", "<|end|>", *map(str, range(261))]
    keys: dict[str, Any] = {"tokens": tokens, "token_type": [3] * 267, "eot_token_id": 5}
    keys = {f"tokenizer__ggml__{key}": value for key, value in keys.items()}
    path = write_gguf(random_model("smollm2"), tmp_path / "model.gguf", **keys)
    assert read_checkpoint(path).conventions.stop == (2, 3, 4)


def test_a_text_begins_with_bos_where_the_file_says_so(tmp_path: Path) -> None:
    model = random_model("smollm2")
    path = write_gguf(model, tmp_path / "model.gguf", tokenizer__ggml__add_bos_token=True)
    assert read_checkpoint(path).conventions.prompt_prefix == (BOS,)


def test_it_may_be_made_to_read_less(tmp_path: Path) -> None:
    model = random_model("llama yarn")
    path = write_gguf(model, tmp_path / "model.gguf")
    checkpoint = read_model(path, context_length=20)
    assert export_checkpoint(checkpoint, tmp_path / "bundle", Precision.FP32) is None
    assert open_bundle(tmp_path / "bundle").manifest.limits.max_target_tokens == 20
    assert largest_error(model, checkpoint) < TOLERANCE
    with pytest.raises(CheckpointError, match="65 is not one of 2 to 64"):
        read_model(path, context_length=65)


def test_a_file_without_suffix_is_told_by_its_beginning(tmp_path: Path) -> None:
    path = write_gguf(random_model("smollm2"), tmp_path / "blob")
    assert read_model(path).config.architecture == "llama"


@pytest.mark.parametrize("kind", [Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.F16, Kind.BF16])
def test_quantised_matrices_are_those_of_the_file(kind: Kind, tmp_path: Path) -> None:
    model = random_model("smollm2")
    exact = read_checkpoint(write_gguf(model, tmp_path / "exact.gguf")).weights
    found = read_checkpoint(write_gguf(model, tmp_path / "model.gguf", kind)).weights
    name = "layers.1.attention.key.weight"
    tolerance = {Kind.Q8_0: 0.01, Kind.F16: 0.001, Kind.BF16: 0.01}.get(kind, 0.15)
    error = np.abs(found[name] - exact[name]).max() / np.abs(exact[name]).max()
    assert 0 < error < tolerance


@pytest.mark.parametrize("kind", [Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0])
def test_matrices_are_read_in_the_blocks_of_the_file(kind: Kind, tmp_path: Path) -> None:
    """Rows of queries and keys are in another order there."""
    path = write_gguf(random_model("smollm2"), tmp_path / "model.gguf", kind)
    weights = read_checkpoint(path).weights
    assert isinstance(weights, Arrays)
    blocks_by_name = {name: weights.read_blocks(name) for name in weights}
    matrices = {
        name for name, weight in weights.items() if weight.ndim == 2 and weight.shape[1] % 32 == 0
    }
    assert {name for name, blocks in blocks_by_name.items() if blocks is not None} == matrices
    for name in matrices:
        blocks = blocks_by_name[name]
        assert blocks is not None and np.array_equal(blocks.read(), weights[name]), name


def test_experts_are_quantised_in_one_tensor(tmp_path: Path) -> None:
    model = random_model("mixtral", intermediate_size=32)
    exact = read_checkpoint(write_gguf(model, tmp_path / "exact.gguf")).weights
    found = read_checkpoint(write_gguf(model, tmp_path / "model.gguf", Kind.Q8_0))
    assert found.bits == 8
    for part in ("gate", "up", "down"):
        name = f"layers.1.feed_forward.experts.2.{part}.weight"
        assert 0 < np.abs(found.weights[name] - exact[name]).max() < 0.01


@pytest.mark.parametrize(
    ("kind", "precision"),
    [
        (Kind.F32, "fp32"),
        (Kind.BF16, "fp32"),
        (Kind.Q8_0, "int8"),
        (Kind.Q5_1, "int8"),
        (Kind.Q4_0, "int4"),
        (Kind.Q4_1, "int4"),
    ],
)
def test_the_default_precision_keeps_the_weights(
    kind: Kind, precision: str, tmp_path: Path
) -> None:
    model = random_model("smollm2", intermediate_size=96)  # in whole blocks
    path = write_gguf(model, tmp_path / "model.gguf", kind)
    arguments = [str(path), "-o", str(tmp_path / "bundle"), "--no-verify"]
    result = CliRunner().invoke(export, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    assert open_bundle(tmp_path / "bundle").manifest.precision == precision


def test_mixed_files_need_what_their_finest_matrices_need() -> None:
    """As Q4_K_M, which has some matrices in six bits; tables of words do not count."""
    assert count_bits([Kind.Q4_K, Kind.Q4_0]) == 4
    assert count_bits([Kind.Q4_K, Kind.Q6_K]) == 8
    assert count_bits([Kind.Q4_0, Kind.F16]) == 8
    assert count_bits([Kind.Q2_K, Kind.Q3_K]) == 4
    assert count_bits([Kind.IQ4_XS]) == 8
    assert count_bits([Kind.F16, Kind.F32]) is None


@pytest.mark.parametrize("precision", [Precision.INT8, Precision.INT4])
def test_a_bundle_of_it_is_served(precision: Precision, tmp_path: Path) -> None:
    model = random_model("smollm2")
    checkpoint = read_checkpoint(write_gguf(model, tmp_path / "model.gguf", Kind.Q4_1))
    export_checkpoint(checkpoint, tmp_path / "bundle", precision)
    bundle = open_bundle(tmp_path / "bundle")
    ids = Tokenizer(bundle.tokenizer_path).encode("It was")
    found = GraphRows(bundle, [[]]).read([ids])[0]
    expected = teacher_forced_log_probabilities(load_module(checkpoint), [], ids)[-1].numpy()
    assert np.corrcoef(found, expected)[0, 1] > 0.98
