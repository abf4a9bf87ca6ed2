"""Imported encoders that rotate compute what `transformers` computes, with pairs and padding."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    PreTrainedModel,
)

from export.readers.hugging_face.families import read_checkpoint
from serving.bundle.manifest import Precision
from tests.export.readers.hugging_face.changing import change, problems_of
from tests.export.readers.hugging_face.encoders import LETTERS, SIZES, tokenizer_of
from tests.export.readers.hugging_face.test_encoders import imported, laid_out, of_transformers
from tests.export.texts import encoded

LARGEST_ERROR = 1e-5
LIKE = {"modernbert": "distilbert", "nomic_bert": "bert"}  # whose tokenizer and segments it has
MODERNBERT = SIZES | {"num_hidden_layers": 5, "local_attention": 6, "pad_token_id": 0}
MODERNBERT |= {f"{name}_token_id": None for name in ("bos", "eos", "cls", "sep")}
BIASES = {"attention_bias": True, "mlp_bias": True, "norm_bias": True, "classifier_bias": True}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "ModernBERT": ("modernbert", MODERNBERT),
    "ModernBERT, averaged": ("modernbert", MODERNBERT | {"classifier_pooling": "mean"}),
    "ModernBERT with biases": (
        "modernbert",
        MODERNBERT | BIASES | {"classifier_activation": "relu"},
    ),
    "ModernBERT of one kind": ("modernbert", MODERNBERT | {"layer_types": ["full_attention"] * 5}),
    "NomicBERT": ("nomic_bert", SIZES | {"type_vocab_size": 2}),
    "NomicBERT scaled": (
        "nomic_bert",
        SIZES | {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 50.0}},
    ),
}


def random_model(name: str, kind: Any = AutoModel, **changes: Any) -> PreTrainedModel:
    """Make one of weights of a trained size."""
    family, options = MODELS[name]
    size = tokenizer_of(LIKE[family]).get_vocab_size() + 3
    config = AutoConfig.for_model(family, vocab_size=size, **{**options, **changes})
    torch.manual_seed(0)
    model: PreTrainedModel = kind.from_config(config).eval()
    for part, parameter in model.named_parameters():
        is_norm = "norm.weight" in part.lower()
        nn.init.normal_(parameter, mean=is_norm, std=0.15 if parameter.dim() > 1 else 0.1)
    return model


def save(model: PreTrainedModel, folder: Path) -> Path:
    model.save_pretrained(folder)
    tokenizer_of(LIKE[model.config.model_type]).save(str(folder / "tokenizer.json"))
    return folder


def texts(count: int) -> list[str]:
    random = np.random.default_rng(0)
    return [
        "".join(random.choice([*LETTERS, " "], random.integers(1, 17))) + "a" for _ in range(count)
    ]


PAIRS = [*zip(texts(20), texts(40)[20:], strict=True)]


@pytest.mark.parametrize("name", MODELS)
def test_classifiers_score_pairs_as_transformers_does(name: str, tmp_path: Path) -> None:
    model = random_model(name, AutoModelForSequenceClassification, num_labels=3)
    bundle, family = imported(save(model, tmp_path / "theirs")), LIKE[model.config.model_type]
    found = encoded(bundle, [laid_out(bundle, family, *pair) for pair in PAIRS])["logits"]
    expected = of_transformers(model, family, PAIRS)[0].logits.numpy()
    assert np.abs(found - expected).max() < LARGEST_ERROR


@pytest.mark.parametrize("name", MODELS)
def test_without_more_said_tokens_are_averaged(name: str, tmp_path: Path) -> None:
    model = random_model(name)
    bundle, family = imported(save(model, tmp_path / "theirs")), LIKE[model.config.model_type]
    found = encoded(bundle, [laid_out(bundle, family, text) for text in texts(20)])["embedding"]
    output, mask = of_transformers(model, family, texts(20))
    expected = (output.last_hidden_state * mask).sum(1) / mask.sum(1)
    assert np.abs(found - expected.numpy()).max() < LARGEST_ERROR
    assert bundle.manifest.limits.max_source_tokens == 40


@pytest.mark.parametrize("name", ["ModernBERT", "NomicBERT"])
def test_what_transformers_writes_is_known(name: str, tmp_path: Path) -> None:
    for number, kind in enumerate((AutoModel, AutoModelForSequenceClassification)):
        assert read_checkpoint(save(random_model(name, kind), tmp_path / str(number))).notes == ()
    masked = read_checkpoint(save(random_model(name, AutoModelForMaskedLM), tmp_path / "masked"))
    [note] = masked.notes
    assert "ForMaskedLM is read without its head" in note


def test_older_files_of_modernbert_are_known(tmp_path: Path) -> None:
    """With one interval for windows, and thetas."""
    folder = save(random_model("ModernBERT"), tmp_path)
    before, path = read_checkpoint(folder).config, folder / "config.json"
    change(path, layer_types=None, rope_parameters=None)
    change(path, global_attn_every_n_layers=3, global_rope_theta=160000.0, local_rope_theta=10000.0)
    change(path, reference_compile=False, layer_norm_eps=1e-5, position_embedding_type="absolute")
    assert read_checkpoint(folder).config == before and read_checkpoint(folder).notes == ()
    change(path, global_attn_every_n_layers=2, local_rope_theta=50.0)
    window = read_checkpoint(folder).config.window  # type: ignore[union-attr]
    assert window is not None and window.layers == (1, 3)
    assert window.rotation.frequencies[1] == pytest.approx(50.0**-0.25)


OF_ITS_AUTHORS: dict[str, Any] = {
    "activation_function": "swiglu",
    "causal": False,
    "fused_bias_fc": True,
    "layer_norm_epsilon": 1e-12,
    "max_trained_positions": 2048,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "model_type": "nomic_bert",
    "n_embd": 32,
    "n_head": 4,
    "n_inner": 50,
    "n_layer": 2,
    "n_positions": 40,
    "pad_vocab_size_multiple": 64,
    "parallel_block": False,
    "prenorm": False,
    "qkv_proj_bias": False,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "type_vocab_size": 2,
    "use_flash_attn": True,
    "use_rms_norm": False,
}


@pytest.fixture
def of_authors(tmp_path: Path) -> Path:
    """Return a folder of NomicBERT as its authors' code writes it."""
    folder = save(random_model("NomicBERT"), tmp_path)
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    (folder / "config.json").write_text(json.dumps(OF_ITS_AUTHORS | {"vocab_size": size}))
    return folder


def test_the_options_of_nomic_berts_authors_are_known(of_authors: Path, tmp_path: Path) -> None:
    expected = read_checkpoint(save(random_model("NomicBERT"), tmp_path / "other")).config
    found = read_checkpoint(of_authors)
    assert found.config == expected and found.notes == ()
    change(of_authors / "config.json", rotary_scaling_factor=2, max_trained_positions=20)
    assert read_checkpoint(of_authors).config.max_source_tokens == 20  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"rotary_emb_fraction": None}, "rotary_emb_fraction 0.0 is not supported"),
        ({"prenorm": True}, "prenorm True is not supported"),
        ({"moe_every_n_layers": 2}, "moe_every_n_layers 2 is not supported"),
        ({"qkv_proj_bias": None}, "qkv_proj_bias True is not supported"),
    ],
)
def test_what_would_compute_another_nomic_bert_is_refused(
    values: dict[str, Any], problem: str, of_authors: Path
) -> None:
    change(of_authors / "config.json", **values)
    assert any(problem in each for each in problems_of(of_authors))


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"classifier_pooling": "max"}, "classifier_pooling 'max' is not supported"),
        ({"classifier_activation": "mish"}, "classifier_activation 'mish' is not supported"),
        ({"layer_types": ["full_attention"]}, "layer_types ['full_attention'] must hold 5 of"),
        ({"head_dim": 16}, "head_dim 16 is not supported"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5 is not supported"),
        ({"is_causal": True}, "is_causal True is not supported"),
        ({"architectures": ["ModernBertForTokenClassification"]}, "architectures"),
    ],
)
def test_what_would_compute_another_modernbert_is_refused(
    values: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    save(random_model("ModernBERT", AutoModelForSequenceClassification), tmp_path)
    change(tmp_path / "config.json", **values)
    problems = problems_of(tmp_path)
    assert any(problem in each for each in problems), problems


@pytest.mark.parametrize("name", ["ModernBERT", "NomicBERT"])
def test_int8_keeps_the_direction(name: str, tmp_path: Path) -> None:
    model = random_model(name)
    folder, family = save(model, tmp_path / "theirs"), LIKE[model.config.model_type]
    bundles = (imported(folder), imported(folder, Precision.INT8))
    rows = [laid_out(bundles[0], family, text) for text in texts(20)]
    one, other = (encoded(bundle, rows)["embedding"] for bundle in bundles)
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    assert ((one * other).sum(1) / norms).min() > 0.998
