"""The Transformers, translators and language models, compute their equations."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers.models.t5.modeling_t5 import T5Attention

from models.architectures.gpt2.config import GPT2Config
from models.architectures.registry import ModelConfigError, parse_config
from models.batch import LanguageBatch, TranslationBatch
from models.layers.position_tables import relative_buckets
from models.loading import build
from serving.bundle.manifest import Precision
from tests.export.graph.rounding import assert_errs_by_rounding
from tests.export.parity import examples_of, largest_error
from tests.grid import in_turns, pairwise
from tests.models.architectures.plain_transformer import PlainLanguageModel, PlainTranslator
from tests.tiny import tiny_bundle

TRANSLATION: dict[str, Any] = {"vocab_size": 40, "d_model": 32, "num_heads": 4, "ffn_dim": 12}
TRANSLATION |= {"encoder_layers": 2, "max_source_tokens": 64, "max_target_tokens": 64}
LANGUAGE: dict[str, Any] = {"vocab_size": 40, "d_model": 64, "num_heads": 4, "ffn_dim": 24}
LANGUAGE |= {"num_layers": 2, "context_length": 32}


def random_module(sizes: dict[str, Any]) -> nn.Module:
    """In float64, every weight random: biases and norms too."""
    torch.manual_seed(0)
    module = build(parse_config(sizes)).double().eval()
    for name, parameter in module.named_parameters():
        nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.3)
    return module


def weights_of(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in module.state_dict().items()}


POSITIONS = [
    ("transformer", "sinusoidal"),
    ("transformer", "affine"),
    ("transformer", "learned"),
    ("transformer", "relative"),
    ("transformer", "linear"),
    ("transformer", "none"),
    ("transformer-ssru", "sinusoidal"),
    ("transformer-ssru", "learned"),
]


@pytest.mark.parametrize(
    ("architecture", "positions", "place", "num_kv_heads"),
    pairwise(POSITIONS, ["pre", "post"], [None, 2, 1]),
)
@torch.inference_mode()
def test_a_translator_equals_plain_loops(
    architecture: str, positions: str, place: str, num_kv_heads: int | None
) -> None:
    options = {
        "positions": {"kind": positions},
        "norm": {"place": place},
        "num_kv_heads": num_kv_heads,
    }
    module = random_module({"architecture": architecture, **TRANSLATION, **options})
    source, target = torch.randint(3, 40, (2, 21)), torch.randint(3, 40, (2, 19))
    actual = module(TranslationBatch(target, target, source, torch.tensor([21, 13])))
    plain = PlainTranslator(module.config, weights_of(module))
    for row, length in enumerate((21, 13)):
        expected = plain.hidden(source[row, :length].tolist(), target[row].tolist())
        np.testing.assert_allclose(actual[row], expected, atol=1e-6)


RELATIVE = {"positions": {"kind": "relative", "num_buckets": 8, "max_distance": 11}}
T5 = RELATIVE | {
    "head_dim": 16,
    "norm": {"kind": "rms", "epsilon": 1e-2},
    "imported": {"biases": False},
}


@pytest.mark.parametrize(
    "options",
    [
        {"activation": "gelu", "tied_embeddings": False},
        {"activation": "swish", "norm": {"epsilon": 0.1}, "imported": {"output_bias": True}},
        {"activation": "gelu_tanh", "gated_ffn": True, "imported": {"embedding_scale": 1.0}},
        {"source_vocab_size": 50, "tied_embeddings": False, "imported": {"output_bias": True}},
        {
            "positions": {"kind": "learned"},
            "norm": {"place": "post"},
            "imported": {"embedding_norm": True},
        },
        {
            "head_dim": 8,
            "num_kv_heads": 2,
            "imported": {"embedding_norm": True, "final_norm": False},
        },
        {
            "gated_ffn": True,
            "num_heads": 3,
            "head_dim": 24,
            "norm": {"place": "post"},
            "imported": {"final_norm": True},
        },
        {"positions": {"kind": "linear"}, "num_heads": 3, "head_dim": 24},
        T5,
        T5 | {"gated_ffn": True, "activation": "gelu_tanh", "tied_embeddings": False},
        RELATIVE | {"imported": {"layer_positions": True}},
        RELATIVE | {"imported": {"encoder_window": 3}},
    ],
)
@torch.inference_mode()
def test_logits_of_other_translators_equal_plain_loops(options: dict[str, Any]) -> None:
    module = random_module({"architecture": "transformer", **TRANSLATION, **options})
    source, target = torch.randint(3, 40, (1, 15)), torch.randint(3, 40, (1, 14))
    source[0, 0] = module.config.source_vocabulary - 1
    hidden = module(TranslationBatch(target, target, source, torch.tensor([15])))
    actual = module.project(hidden)
    plain = PlainTranslator(module.config, weights_of(module))
    expected = plain.logits(plain.hidden(source[0].tolist(), target[0].tolist()))
    np.testing.assert_allclose(actual[0], expected, atol=1e-5)  # sinusoids are float32


@pytest.mark.parametrize("window", [None, 1, 4, 32])
@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
@torch.inference_mode()
def test_a_language_model_equals_plain_loops(architecture: str, window: int | None) -> None:
    module = random_module({"architecture": architecture, **LANGUAGE, "window": window})
    ids = torch.randint(3, 40, (2, 11))
    actual = module(LanguageBatch(ids, ids))
    plain = PlainLanguageModel(module.config, weights_of(module))
    for row in range(2):
        np.testing.assert_allclose(actual[row], plain.hidden(ids[row].tolist()), atol=1e-6)


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
@torch.inference_mode()
def test_chunks_of_a_prompt_equal_the_whole(architecture: str, window: int | None) -> None:
    module = random_module({"architecture": architecture, **LANGUAGE, "window": window})
    ids = torch.randint(3, 40, (2, 12))
    whole = module(LanguageBatch(ids, ids))
    hidden, state = module.read(ids[:, :7], module.empty_state())
    torch.testing.assert_close(hidden, whole[:, :7])
    hidden, state = module.read(ids[:, 7:9], state)
    torch.testing.assert_close(hidden, whole[:, 7:9])
    for position in range(9, 12):
        hidden, state = module.step(ids[:, position], state)
        torch.testing.assert_close(hidden, whole[:, position])


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("num", "farthest"), [(32, 128), (8, 20), (16, 100), (64, 256), (4, 3)])
def test_buckets_are_those_of_t5(num: int, farthest: int, bidirectional: bool) -> None:
    offsets = torch.arange(-farthest, farthest + 1)
    theirs = T5Attention._relative_position_bucket(offsets, bidirectional, num, farthest)
    assert relative_buckets(num, farthest, bidirectional=bidirectional) == theirs.tolist()


def test_residual_layers_of_gpt2_begin_small() -> None:
    torch.manual_seed(0)
    module = build(GPT2Config(vocab_size=40, d_model=64, num_layers=8))
    layer = module.layers[0]
    assert layer.attention.output.weight.std().item() == pytest.approx(
        0.02 / math.sqrt(16), rel=0.05
    )
    assert layer.feed_forward.up.weight.std().item() == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        (
            {"architecture": "transformer", "d_model": 30, "num_heads": 4, "num_kv_heads": 3},
            ["d_model 30", "num_heads 4 must be a multiple of num_kv_heads 3"],
        ),
        ({"architecture": "transformer-ssru", "positions": {"kind": "relative"}}, ["positions"]),
        (
            {
                "architecture": "transformer",
                "head_dim": 0,
                "positions": {"kind": "relative", "num_buckets": 7, "max_distances": 9},
            },
            ["positions.num_buckets: ", "did you mean max_distance?", "head_dim: "],
        ),
        (
            {"architecture": "transformer", "positions": {"kind": "learned", "max_distance": 9}},
            ["positions.max_distance: learned has no such option; relative has it"],
        ),
        (
            {"architecture": "transformer", "positions": {"kind": "absolute"}, "norm": "post"},
            [
                "kind must be one of sinusoidal, learned, affine, relative, linear, none",
                "norm: must be a table of kind",
            ],
        ),
        (
            {"architecture": "transformer", "positions": {}, "norm_epsilon": 1e-6},
            ["positions: needs a kind, one of ", "norm_epsilon: transformer has no such"],
        ),
        (
            {"architecture": "transformer", "source_vocab_size": 41, "activation": "tanh"}
            | {"norm": {"epsilon": 0.0}, "positions": {"kind": "relative", "max_distance": 16}},
            ["source_vocab_size 41", "activation", "max_distance 16 must be more", "norm.epsilon"],
        ),
        ({"architecture": "transformer-ssru", "cell": "gru"}, ["cell"]),
        (
            {"architecture": "gpt2", "num_heads": 3, "context_length": 8, "window": 9},
            ["num_heads 3", "window 9 is longer than context_length 8"],
        ),
        ({"architecture": "gpt2", "num_kv_heads": 2, "window": 0}, ["num_kv_heads", "window"]),
        (
            {"architecture": "llama", "d_model": 32, "num_heads": 4, "num_kv_heads": 8},
            ["num_kv_heads 8"],
        ),
        (
            {"architecture": "llama", "head_dim": 9, "num_kv_heads": 3},
            ["num_kv_heads 3", "heads of 9 cannot be cut into pairs"],
        ),
        (
            {"architecture": "llama", "imported": {"qk_norm_after_rotation": True}},
            ["qk_norm_after_rotation needs imported.qk_norm"],
        ),
        (
            {"architecture": "llama", "imported": {"input_norms": False}},
            ["input_norms false needs imported.sandwich_norms"],
        ),
    ],
)
def test_options_that_do_not_fit_are_refused_together(
    sizes: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ModelConfigError) as caught:
        parse_config({"vocab_size": 40, **sizes})
    assert len(caught.value.problems) == len(words)
    for word in words:
        assert any(word in problem for problem in caught.value.problems)


GRAPH_RELATIVE: dict[str, Any] = {"positions": {"kind": "relative"}}
GRAPH_T5: dict[str, Any] = {
    "positions": {"kind": "relative", "num_buckets": 8, "max_distance": 11},
    "norm": {"kind": "rms"},
}
GRAPH_T5 |= {"gated_ffn": True, "head_dim": 16, "num_heads": 3, "imported": {"biases": False}}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": {"place": "post"}},
        {"activation": "gelu", "positions": {"kind": "learned"}},
        {"tied_embeddings": False, "activation": "gelu", "norm": {"place": "post"}},
        {"num_heads": 1, "encoder_layers": 1, "decoder_layers": 3, "vocab_size": 300},
        {"num_kv_heads": 1, "positions": {"kind": "affine"}},
        {"num_kv_heads": 2, "positions": {"kind": "learned"}},
        GRAPH_RELATIVE,
        GRAPH_RELATIVE | {"num_kv_heads": 2, "norm": {"place": "post"}},
        GRAPH_RELATIVE | {"num_kv_heads": 1, "num_heads": 8, "d_model": 64},
        {"norm": {"epsilon": 0.1}, "imported": {"embedding_norm": True}},
        {
            "activation": "swish",
            "gated_ffn": True,
            "imported": {"output_bias": True, "embedding_scale": 1.0},
        },
        {"source_vocab_size": 300, "tied_embeddings": False, "imported": {"final_norm": False}},
        {
            "head_dim": 16,
            "num_kv_heads": 2,
            "norm": {"place": "post"},
            "imported": {"final_norm": True},
        },
        {"positions": {"kind": "none"}},
        {"positions": {"kind": "linear"}, "norm": {"place": "post"}},
        {"positions": {"kind": "linear"}, "d_model": 36, "num_heads": 6, "num_kv_heads": 3},
        GRAPH_T5,
        GRAPH_T5 | {"head_dim": 12},
        {"d_model": 60, "num_heads": 3, "positions": {"kind": "relative"}},
    ],
)
def test_log_probabilities_are_those_of_torch(tmp_path: Path, changes: dict[str, Any]) -> None:
    bundle = tiny_bundle("transformer", tmp_path, Precision.FP32, **changes)
    assert largest_error(bundle, tmp_path / "transformer", examples_of("transformer")) < 2e-5


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {
            "activation": "gelu",
            "decoder_layers": 1,
            "positions": {"kind": "learned"},
            "norm": {"place": "post"},
        },
        {"num_kv_heads": 2, "tied_embeddings": False, "decoder_layers": 3},
        {"head_dim": 12},
    ],
)
def test_log_probabilities_with_a_recurrent_decoder_are_those_of_torch(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    bundle = tiny_bundle("transformer-ssru", tmp_path, Precision.FP32, **changes)
    checkpoint = tmp_path / "transformer-ssru"
    assert largest_error(bundle, checkpoint, examples_of("transformer-ssru")) < 2e-5


def test_distances_beyond_the_farthest_are_one(tmp_path: Path) -> None:
    limits = {"max_source_tokens": 256, "max_target_tokens": 192}
    bundle = tiny_bundle("transformer", tmp_path, Precision.FP32, **GRAPH_RELATIVE, **limits)
    examples = examples_of("transformer", lengths=(240, 130, 3), num_steps=180)
    assert largest_error(bundle, tmp_path / "transformer", examples) < 2e-5


LOW_PRECISION_CASES: list[dict[str, Any]] = [
    {"num_kv_heads": 1},
    GRAPH_RELATIVE,
    GRAPH_RELATIVE | {"num_kv_heads": 2, "norm": {"place": "post"}},
    {"positions": {"kind": "linear"}},
    GRAPH_T5,
    GRAPH_T5 | {"head_dim": 12},
    {"d_model": 60, "num_heads": 3},
]


@pytest.mark.parametrize(
    ("changes", "precision"), in_turns(LOW_PRECISION_CASES, [Precision.FP16, Precision.INT8])
)
def test_low_precision_is_near_torch(
    tmp_path: Path, changes: dict[str, Any], precision: Precision
) -> None:
    bundle = tiny_bundle("transformer", tmp_path, precision, **changes)
    assert_errs_by_rounding(bundle, tmp_path / "transformer", examples_of("transformer"))
