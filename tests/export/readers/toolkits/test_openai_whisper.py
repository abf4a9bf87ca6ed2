"""Checkpoints of openai/whisper give the log-probabilities of the model they were made from."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.readers.reading import read_model
from models.checkpoint import CheckpointError
from models.decoding import teacher_forced_log_probabilities
from models.loading import load_module
from tests.export.readers.whispers import (
    ENGLISH,
    FRAMES,
    MELS,
    NO_TIMESTAMPS,
    START,
    TRANSCRIBE,
    openai_sizes,
    openai_weights,
    random_whisper,
)
from tests.tiny import speech_tokenizer

IDS = [START, ENGLISH, TRANSCRIBE, NO_TIMESTAMPS, 100, 42, 7]


def save(folder: Path, **sizes: Any) -> Path:
    """Save a random Whisper as openai/whisper does, and its tokenizer beside it."""
    model, path = random_whisper(), folder / "tiny.pt"
    weights = {name: torch.from_numpy(weight) for name, weight in openai_weights(model).items()}
    torch.save({"dims": openai_sizes(model) | sizes, "model_state_dict": weights}, path)
    speech_tokenizer().save(str(folder / "tokenizer.json"))
    return path


def problems_of(path: Path) -> list[str]:
    with pytest.raises(CheckpointError) as caught:
        read_model(path)
    return caught.value.problems


def test_log_probabilities_are_those_of_transformers(tmp_path: Path) -> None:
    checkpoint = read_model(save(tmp_path))
    features = np.random.default_rng(0).uniform(-1, 1.5, (MELS, FRAMES)).astype(np.float32)
    with torch.inference_mode():
        inputs = torch.from_numpy(features)[None]
        expected = random_whisper()(inputs, decoder_input_ids=torch.tensor([IDS])).logits[0]
    ours = teacher_forced_log_probabilities(load_module(checkpoint), features, IDS)
    assert (ours - expected.log_softmax(-1)).abs().max() < 1e-4
    config: Any = checkpoint.config
    assert config.audio.languages == {"en": ENGLISH, "fr": 259}


def test_a_missing_vocabulary_is_asked_for(tmp_path: Path) -> None:
    path = save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    assert problems_of(path) == [
        "checkpoints of openai/whisper hold no vocabulary: put tokenizer.json of"
        " openai/whisper-tiny on the Hugging Face hub beside it"
    ]


@pytest.mark.parametrize(
    ("sizes", "problem"),
    [
        ({"n_audio_ctx": None}, "n_audio_ctx"),
        ({"n_mels": "80"}, "n_mels"),
        ({"n_text_state": 64}, "n_text_state 64 must be 32, as n_audio_state"),
        ({"n_vocab": 100}, "100"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(
    tmp_path: Path, sizes: dict[str, Any], problem: str
) -> None:
    assert any(problem in text for text in problems_of(save(tmp_path, **sizes)))
