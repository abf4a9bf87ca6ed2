"""Language models of CTranslate2 give its own log-probabilities and texts."""

import json
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
from ctranslate2.converters import TransformersConverter
from tokenizers import Tokenizer

from export.bundling.running import GraphRows
from export.bundling.writer import export_checkpoint
from export.readers.reading import read_model
from models.checkpoint import CheckpointError
from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle, open_bundle
from tests.export.readers.hugging_face.language_models import (
    BOS,
    CONTEXT_LENGTH,
    LLAMA3,
    prompts,
    random_model,
    save,
)

NUM_TOKENS = 259  # of the tokenizer
# CTranslate2 adds tokens to the vocabularies of other families until they fit.
SIZES = {"gpt2": NUM_TOKENS, "gptj": NUM_TOKENS, "opt": 264}
TOKENIZER = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>"}
TOKENIZER |= {"eos_token": "</s>", "unk_token": "<pad>"}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama 3": ("llama", {"rope_parameters": LLAMA3}),
    "linear": ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 3.0}}),
    # CTranslate2 4.8 fails where a text is longer than the window.
    "mistral": ("mistral", {"sliding_window": 30}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
    "gemma": ("gemma", {}),
    "gpt2": ("gpt2", {}),
    "opt": ("opt", {}),
}
TOLERANCE = 1e-4


def convert(name: str, folder: Path, quantization: str | None = None) -> Path:
    """Convert a random model of transformers with CTranslate2's converter."""
    family, changes = MODELS[name]
    if family in SIZES:
        changes = {"vocab_size": SIZES[family], **changes}
    source = save(random_model(family, **changes), folder / "theirs")
    (source / "tokenizer_config.json").write_text(json.dumps(TOKENIZER))
    converter = TransformersConverter(str(source), copy_files=["tokenizer.json"])
    return Path(converter.convert(str(folder / "ct2"), quantization=quantization))


def export(folder: Path, output: Path, precision: Precision = Precision.FP32) -> Bundle:
    export_checkpoint(read_model(folder, CONTEXT_LENGTH), output, precision)
    return open_bundle(output)


def largest_error(bundle: Bundle, folder: Path, compute_type: str = "float32") -> float:
    """Return the largest difference of the log-probabilities of a random text."""
    generator = ctranslate2.Generator(str(folder), compute_type=compute_type, intra_threads=1)
    ids = [BOS, *prompts(3)[2]]
    logits = np.array(generator.forward_batch([ids]))[0]
    expected = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    rows = GraphRows(bundle, [[]])
    ours = np.stack([rows.read([[i]])[0] for i in ids])
    return float(np.abs(ours - expected).max())


@pytest.mark.parametrize("name", MODELS)
def test_bundles_compute_what_ctranslate2_computes(tmp_path: Path, name: str) -> None:
    folder = convert(name, tmp_path)
    assert largest_error(export(folder, tmp_path / "bundle"), folder) < TOLERANCE


def test_levels_of_int8_are_kept(tmp_path: Path) -> None:
    folder = convert("llama", tmp_path, "int8")
    checkpoint = read_model(folder)
    assert checkpoint.bits == 8
    assert largest_error(export(folder, tmp_path / "bundle"), folder) < TOLERANCE
    blocks = checkpoint.weights.read_blocks("layers.0.attention.key.weight")  # type: ignore[attr-defined]
    assert blocks.levels.dtype == np.int8
    assert np.array_equal(blocks.read(), checkpoint.weights["layers.0.attention.key.weight"])


def test_prompts_and_ends_are_those_of_the_tokenizer(tmp_path: Path) -> None:
    checkpoint = read_model(convert("llama", tmp_path))
    assert checkpoint.conventions.prompt_prefix == (BOS,)
    assert Tokenizer.from_str(checkpoint.tokenizer).get_vocab_size() == NUM_TOKENS
    [note] = checkpoint.notes
    assert note.startswith("the file does not say how long texts may be: the context is 4096")


def test_chat_templates_beside_the_tokenizer_are_taken(tmp_path: Path) -> None:
    folder = convert("llama", tmp_path)
    template = "{{ messages[0].content }}"
    (folder / "chat_template.jinja").write_text(template)
    assert read_model(folder).conventions.chat_template == template


def test_a_missing_tokenizer_is_asked_for(tmp_path: Path) -> None:
    folder = convert("llama", tmp_path)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"copy tokenizer\.json from the folder"):
        read_model(folder)


@pytest.mark.parametrize(
    ("family", "feature"),
    [
        ("gptj", "attention and feed-forward networks side by side"),
        ("bloom", r"linear biases of scores \(ALiBi\)"),
        ("gemma2", "other norms than one before each sublayer"),
    ],
)
def test_shapes_that_no_architecture_has_are_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, feature: str
) -> None:
    monkeypatch.setitem(MODELS, family, (family, {}))
    folder = convert(family, tmp_path)
    with pytest.raises(CheckpointError, match=feature):
        read_model(folder)
