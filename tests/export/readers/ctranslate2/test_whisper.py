"""Whispers of CTranslate2, as faster-whisper has them, give its own log-probabilities."""

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
from serving.bundle.opening import open_bundle
from serving.requests.request import Audio
from tests.export.readers.whispers import (
    ENGLISH,
    FRAMES,
    MELS,
    NO_TIMESTAMPS,
    START,
    TRANSCRIBE,
    random_whisper,
)
from tests.tiny import speech_tokenizer

STEPS = 12
QUANTISATIONS = [None, "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16"]
QUANTISATIONS += ["float16", "bfloat16", "float32"]


def save(folder: Path, *, has_times: bool = True) -> Path:
    """Save a random Whisper of transformers."""
    tokenizer = speech_tokenizer()
    model = random_whisper()
    model.generation_config.suppress_tokens = [5, 9]
    model.generation_config.begin_suppress_tokens = [7, 256]
    model.save_pretrained(folder)
    if not has_times:
        content = json.loads(tokenizer.to_str())
        content["added_tokens"] = [t for t in content["added_tokens"] if t["id"] <= NO_TIMESTAMPS]
        tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {f"{name}_token": "<|endoftext|>" for name in ("bos", "eos", "unk")}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def convert(folder: Path, quantization: str | None = None, **options: Any) -> Path:
    """Convert a random Whisper with CTranslate2's converter."""
    source = save(folder / "theirs", **options)
    converter = TransformersConverter(str(source), copy_files=["tokenizer.json"])
    return Path(converter.convert(str(folder / "ct2"), quantization=quantization))


def their_generation(folder: Path, features: np.ndarray) -> tuple[list[int], np.ndarray]:
    """Generate STEPS tokens. Return them, and all log-probabilities."""
    model = ctranslate2.models.Whisper(str(folder), compute_type="float32", intra_threads=1)
    [result] = model.generate(
        ctranslate2.StorageView.from_array(features[None]),
        [[START, ENGLISH, TRANSCRIBE, NO_TIMESTAMPS]],
        beam_size=1,
        max_length=2 * STEPS,  # with the prompt
        suppress_blank=False,
        suppress_tokens=[],
        return_logits_vocab=True,
    )
    logits = np.stack([np.asarray(step) for step in result.logits[0]])
    return result.sequences_ids[0], logits - np.log(np.exp(logits).sum(-1, keepdims=True))


@pytest.mark.parametrize("quantisation", QUANTISATIONS)
def test_bundles_compute_what_ctranslate2_computes(
    tmp_path: Path, quantisation: str | None
) -> None:
    folder = convert(tmp_path, quantisation)
    checkpoint = read_model(folder)
    assert checkpoint.bits == (8 if (quantisation or "").startswith("int8") else None)
    export_checkpoint(checkpoint, tmp_path / "bundle", Precision.FP32)

    features = np.random.default_rng(0).uniform(-1, 1.5, (MELS, FRAMES)).astype(np.float32)
    ids, expected = their_generation(folder, features)
    rows = GraphRows(open_bundle(tmp_path / "bundle"), [Audio(features.tobytes(), FRAMES // 2)])
    ours = [rows.read([[i]])[0] for i in (START, ENGLISH, TRANSCRIBE, NO_TIMESTAMPS, *ids)]
    assert len(ids) == STEPS
    assert np.abs(np.stack(ours)[3:-1] - expected).max() < 1e-4


def test_settings_are_those_of_its_files(tmp_path: Path) -> None:
    path = convert(tmp_path) / "config.json"
    changed = {**json.loads(path.read_text()), "alignment_heads": [[0, 1], [1, 3], [1, 0]]}
    path.write_text(json.dumps(changed))
    checkpoint = read_model(path.parent)
    config: Any = checkpoint.config
    assert config.alignment_heads == (1, 4, 7)
    assert config.audio.languages == {"en": ENGLISH, "fr": 259}
    assert (config.audio.first_timestamp, config.audio.transcribe) == (266, TRANSCRIBE)
    assert checkpoint.conventions.prompt_prefix == (START,)
    processors = checkpoint.conventions.logits_processors
    assert processors == {"suppress_tokens": (5, 9), "begin_suppress_tokens": (7, 256)}
    assert (
        "a Whisper, which says nothing about its licence" in checkpoint.files["README.md"].decode()
    )


def test_tokens_of_times_are_added_to_a_tokenizer_without_them(tmp_path: Path) -> None:
    tokenizer = read_model(convert(tmp_path, has_times=False)).tokenizer
    assert Tokenizer.from_str(tokenizer).get_vocab() == speech_tokenizer().get_vocab()


def test_a_tokenizer_is_made_of_the_vocabulary_where_there_is_none(tmp_path: Path) -> None:
    folder = convert(tmp_path)
    (folder / "tokenizer.json").unlink()
    tokenizer = Tokenizer.from_str(read_model(folder).tokenizer)
    assert tokenizer.get_vocab() == speech_tokenizer().get_vocab()
    assert tokenizer.decode(tokenizer.encode("déjà vu").ids) == "déjà vu"


@pytest.mark.parametrize(
    ("file", "changes", "problem"),
    [
        ("config.json", {"alignment_heads": [[2, 0]]}, "must be pairs of a layer and a head"),
        ("config.json", {"alignment_heads": [[0]]}, "must be pairs of a layer and a head"),
        ("config.json", {"suppress_ids": ["a"]}, "suppress_ids"),
        ("preprocessor_config.json", {"feature_size": 80}, "must be 20, as model.bin has it"),
        ("preprocessor_config.json", {"sampling_rate": 8000}, "sampling_rate"),
        ("vocabulary.json", ["a"], "has 1 tokens, the model's table has 367"),
    ],
)
def test_what_is_wrong_is_said(
    tmp_path: Path, file: str, changes: dict[str, Any] | list[str], problem: str
) -> None:
    path = convert(tmp_path) / file
    values = json.loads(path.read_text()) if path.exists() else {}
    changed = {**values, **changes} if isinstance(changes, dict) else changes
    path.write_text(json.dumps(changed))
    with pytest.raises(CheckpointError, match=problem):
        read_model(path.parent)


def test_a_vocabulary_without_special_tokens_is_refused(tmp_path: Path) -> None:
    path = convert(tmp_path) / "vocabulary.json"
    path.write_text(path.read_text().replace("startofprev", "other"))
    (path.parent / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"the vocabulary has no token <\|startofprev\|>"):
        read_model(path.parent)
