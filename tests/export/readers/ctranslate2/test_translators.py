"""Translators of CTranslate2 give its own log-probabilities and translations."""

from pathlib import Path
from typing import Any

import pytest
from ctranslate2.specs import common_spec
from tokenizers import Tokenizer

from export.readers.reading import read_model
from models.checkpoint import Checkpoint, load_checkpoint
from serving.bundle.manifest import Precision
from tests.export.readers.ctranslate2.comparing import (
    decode_sources,
    export_model,
    largest_error,
    open_translator,
    random_sources,
    translate,
)
from tests.export.readers.ctranslate2.specs import list_tokens, save_translator
from tests.tiny import tiny_checkpoint

QUANTISATIONS = (
    *("int8", "int8_float32", "int8_float16", "int8_bfloat16"),
    *("int16", "float16", "bfloat16", "float32"),
)
MODELS: dict[str, dict[str, Any]] = {
    "pre-norm with sinusoids": {},
    "post-norm": {"norm": {"place": "post"}, "activation": "swish"},
    "like BART": {
        "norm": {"place": "post"},
        "activation": "gelu",
        "positions": {"kind": "learned"},
        "imported": {"embedding_norm": True, "embedding_scale": 1.0, "output_bias": True},
    },
    "like T5": {
        "norm": {"kind": "rms", "epsilon": 1e-6},
        "activation": "gelu_tanh",
        "gated_ffn": True,
        "positions": {"kind": "relative", "num_buckets": 8, "max_distance": 20},
        "imported": {"biases": False},
    },
    "three tables": {"tied_embeddings": False, "imported": {"output_bias": True}},
    "an encoder of other sizes": {
        "positions": {"kind": "learned"},
        "imported": {"encoder_heads": 2, "encoder_ffn_dim": 48},
    },
}
TEXTS = ("A dog is running through the snow.", "Where did you buy that hat?", "Two men play.")
TOLERANCE = 1e-4


def saved(folder: Path, checkpoint: Checkpoint, *args: Any, **options: Any) -> Path:
    """Write it with its tokenizer beside it, as converters do that are told to copy it."""
    options = {"add_source_eos": True, "add_source_bos": False} | options
    save_translator(checkpoint, folder, *args, **options)
    (folder / "tokenizer.json").write_text(checkpoint.tokenizer)
    return folder


@pytest.mark.parametrize("name", MODELS)
def test_bundles_compute_what_ctranslate2_computes(tmp_path: Path, name: str) -> None:
    checkpoint = tiny_checkpoint("transformer", tmp_path / "tiny", **MODELS[name])
    folder = saved(tmp_path / "ct2", checkpoint)
    translator, bundle = open_translator(folder), export_model(folder, tmp_path / "bundle")
    sources = random_sources(list_tokens(checkpoint.tokenizer))
    assert largest_error(bundle, translator, sources) < TOLERANCE
    greedy = [result.hypotheses[0] for result in translate(translator, sources)]
    assert decode_sources(bundle, sources) == greedy


@pytest.fixture(scope="module")
def shipped() -> Checkpoint:
    return load_checkpoint("models/checkpoints/transformer-en-fr")


@pytest.mark.parametrize("quantization", QUANTISATIONS)
def test_weights_of_every_quantisation(tmp_path: Path, quantization: str) -> None:
    tiny = tiny_checkpoint("transformer", tmp_path / "tiny")
    folder = saved(tmp_path / "ct2", tiny, quantization)
    checkpoint = read_model(folder)
    assert checkpoint.bits == (8 if quantization.startswith("int8") else None)
    translator, bundle = open_translator(folder), export_model(folder, tmp_path / "bundle")
    assert (
        largest_error(bundle, translator, random_sources(list_tokens(tiny.tokenizer))) < TOLERANCE
    )


def cut_texts(checkpoint: Checkpoint) -> list[list[str]]:
    tokenizer = Tokenizer.from_str(checkpoint.tokenizer)
    return [tokenizer.encode(text, add_special_tokens=False).tokens for text in TEXTS]


@pytest.mark.parametrize("length_penalty", [1.0, 0.2])
def test_beams_find_what_ctranslate2_finds(
    tmp_path: Path, shipped: Checkpoint, length_penalty: float
) -> None:
    folder = saved(tmp_path / "ct2", shipped)
    translator, bundle = open_translator(folder), export_model(folder, tmp_path / "bundle")
    sources = cut_texts(shipped)
    options = {"beam_size": 4, "length_penalty": length_penalty}
    best = [result.hypotheses[0] for result in translate(translator, sources, **options)]
    assert decode_sources(bundle, sources, 4, length_penalty) == best


def test_int8_translates_as_ctranslate2_in_int8(tmp_path: Path, shipped: Checkpoint) -> None:
    folder = saved(tmp_path / "ct2", shipped, "int8")
    translator = open_translator(folder, "int8")
    bundle = export_model(folder, tmp_path / "bundle", Precision.INT8)
    sources = cut_texts(shipped)
    greedy = [result.hypotheses[0] for result in translate(translator, sources)]
    assert decode_sources(bundle, sources) == greedy


def test_gelu_by_a_sigmoid_is_computed_exactly(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("transformer", tmp_path / "tiny", activation="swish")
    folder = saved(tmp_path / "ct2", checkpoint, activation=common_spec.Activation.GELUSigmoid)
    translator, bundle = open_translator(folder), export_model(folder, tmp_path / "bundle")
    sources = random_sources(list_tokens(checkpoint.tokenizer))
    assert largest_error(bundle, translator, sources) < TOLERANCE


def test_models_of_marian_start_from_zeros(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("transformer", tmp_path / "tiny", norm={"place": "post"})
    folder = saved(
        tmp_path / "ct2",
        checkpoint,
        "int8",
        starts_from_zeros=True,
        decoder_start_token="</s>",
        add_source_eos=True,
    )
    translator, bundle = open_translator(folder), export_model(folder, tmp_path / "bundle")
    sources = random_sources(list_tokens(checkpoint.tokenizer))
    assert bundle.manifest.tokens.prompt_prefix == (checkpoint.config.vocab_size,)
    assert largest_error(bundle, translator, sources) < TOLERANCE


def test_positions_that_ctranslate2_computes_need_no_table(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("transformer", tmp_path / "tiny")
    folder = saved(tmp_path / "ct2", checkpoint)
    config: Any = read_model(folder).config
    assert config.max_source_tokens == 1024


def test_beginnings_and_ends_of_sources_are_those_of_the_configuration(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("transformer", tmp_path / "tiny")
    folder = saved(tmp_path / "ct2", checkpoint, add_source_bos=True, add_source_eos=False)
    translator, bundle = open_translator(folder), export_model(folder, tmp_path / "bundle")
    assert bundle.manifest.tokens.source_prefix == (1,)
    assert bundle.manifest.tokens.source_suffix == ()
    sources = random_sources(list_tokens(checkpoint.tokenizer))
    assert largest_error(bundle, translator, sources) < TOLERANCE
