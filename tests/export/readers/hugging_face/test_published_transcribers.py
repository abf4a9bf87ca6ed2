"""OpenAI's Whisper on read sentences, beside what `transformers` makes of the same folder.

WHISPER_FOLDER names a folder such as that of openai/whisper-tiny.en; recordings are those of
Debian's package pocketsphinx-testdata.
"""

import os
import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import GenerationMixin, WhisperFeatureExtractor, WhisperForConditionalGeneration

from export.bundling.running import GraphRows
from export.bundling.writer import export_checkpoint
from export.readers.reading import read_model
from serving.audio.features import log_mel
from serving.bundle.manifest import AudioSpec, Precision
from serving.bundle.opening import Bundle, open_bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.requests.request import Audio, FinishedEvent, GenerationRequest
from serving.text.tokenizer import Tokenizer
from tests.serving.engine.driving import run_all

FOLDER = Path(os.environ.get("WHISPER_FOLDER", "whisper-tiny.en"))
RECORDINGS = sorted(Path("/usr/share/pocketsphinx/test/data/librivox").glob("*.wav"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER.is_dir(), reason="WHISPER_FOLDER names no folder"),
    pytest.mark.skipif(not RECORDINGS, reason="pocketsphinx-testdata is not installed"),
]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[Precision, Bundle]:
    checkpoint, folder = read_model(FOLDER), tmp_path_factory.mktemp("bundles")
    for precision in (Precision.FP32, Precision.INT8):
        export_checkpoint(checkpoint, folder / precision, precision)
    return {name: open_bundle(folder / name) for name in (Precision.FP32, Precision.INT8)}


@pytest.fixture(scope="module")
def theirs() -> WhisperForConditionalGeneration:
    return WhisperForConditionalGeneration.from_pretrained(FOLDER, dtype=torch.float32).eval()


def read_samples(path: Path) -> np.ndarray:
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels()) == (16000, 1)
        return np.frombuffer(file.readframes(file.getnframes()), np.int16)


def their_features() -> torch.Tensor:
    samples = [read_samples(path) / 32768 for path in RECORDINGS]
    extractor = WhisperFeatureExtractor.from_pretrained(FOLDER)
    return extractor(samples, sampling_rate=16000, return_tensors="pt").input_features.float()


def first_tokens(bundle: Bundle) -> tuple[AudioSpec, list[int]]:
    """Return the audio of a bundle, and the prompt of a transcript in English without times."""
    audio = bundle.manifest.audio
    assert audio is not None
    tokens = [audio.languages["en"], audio.transcribe] if audio.languages else []
    return audio, [audio.start, *filter(None, tokens), audio.no_timestamps]


def our_texts(bundle: Bundle) -> list[list[int]]:
    audio, prompt = first_tokens(bundle)
    requests = [
        GenerationRequest(
            path.name,
            audio=Audio(log_mel(read_samples(path), audio).tobytes(), audio.num_frames // 2),
            is_whole=True,
            prompt_ids=tuple(prompt),
            max_new_tokens=100,
        )
        for path in RECORDINGS
    ]
    stories = run_all(Engine(bundle, EngineConfig(slots=8, threads=2)), requests)
    finals = [stories[request.request_id].final for request in requests]
    return [[*final.best.tokens.ids] for final in finals if isinstance(final, FinishedEvent)]


@torch.inference_mode()
def test_texts_and_log_probabilities_are_theirs(
    bundles: dict[Precision, Bundle], theirs: WhisperForConditionalGeneration
) -> None:
    bundle, features = bundles[Precision.FP32], their_features()
    audio, prompt = first_tokens(bundle)
    processors, [end] = bundle.manifest.logits_processors, bundle.manifest.tokens.stop
    times = range(audio.no_timestamps, bundle.manifest.vocab_size)
    rows = GenerationMixin.generate(
        theirs,
        features,
        decoder_input_ids=torch.tensor([prompt] * len(features)),
        do_sample=False,
        num_beams=1,
        max_new_tokens=100,
        max_length=None,
        suppress_tokens=[*processors.suppress_tokens, *times],
        begin_suppress_tokens=[*processors.begin_suppress_tokens],
    )
    expected = [row[len(prompt) :] for row in rows.tolist()]
    assert our_texts(bundle) == [row[: [*row, end].index(end)] for row in expected]
    expected_logp = theirs(features, decoder_input_ids=rows).logits.log_softmax(-1).numpy()
    windows = [Audio(window.numpy().tobytes(), audio.num_frames // 2) for window in features]
    actual = GraphRows(bundle, windows, threads=2).score(rows.tolist())
    own = rows[:, 1:, None].numpy()
    of_texts = [np.take_along_axis(side[:, :-1], own, -1) for side in (actual, expected_logp)]
    assert np.abs(of_texts[0] - of_texts[1]).max() < 1e-4
    assert np.abs(actual - expected_logp).max() < 1e-3  # of all tokens, the least likely included


def test_int8_writes_nearly_the_same_words(bundles: dict[Precision, Bundle]) -> None:
    tokenizer = Tokenizer(bundles[Precision.FP32].tokenizer_path)
    exact, rounded = (
        [tokenizer.decode(text).split() for text in our_texts(bundles[precision])]
        for precision in (Precision.FP32, Precision.INT8)
    )
    same = sum(
        a == b for x, y in zip(exact, rounded, strict=True) for a, b in zip(x, y, strict=False)
    )
    assert same > 0.9 * sum(map(len, exact))
