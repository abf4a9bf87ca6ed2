"""Spectrograms agree with those of transformers' WhisperFeatureExtractor."""

import wave
from pathlib import Path

import numpy as np
import pytest

from serving.audio.features import Samples, log_mel, mel_filters
from serving.bundle.manifest import AudioSpec

RATE = 16_000
WINDOW = 30 * RATE
RECORDINGS = Path("/usr/share/pocketsphinx/test/data/librivox")


def audio_spec(num_mels: int) -> AudioSpec:
    return AudioSpec(
        sampling_rate=RATE,
        num_mels=num_mels,
        num_frames=3000,
        hop=160,
        fft_size=400,
        start=1,
        previous=2,
        no_speech=3,
        no_timestamps=4,
        first_timestamp=5,
        timestamp_step=0.02,
        max_initial_timestamp=1.0,
    )


def synthetic_speech() -> Samples:
    """Return harmonics of a voice whose pitch and loudness change, with pauses."""
    times = np.arange(10 * RATE) / RATE
    phase = 2 * np.pi * np.cumsum(120 + 30 * np.sin(2 * np.pi * 0.7 * times)) / RATE
    voice = sum(np.sin(harmonic * phase) / harmonic for harmonic in range(1, 30))
    loudness = np.clip(np.sin(2 * np.pi * 1.3 * times), 0, 1)
    return (8000 * voice * loudness).clip(-32768, 32767).astype(np.int16)


def noise(num_samples: int, amplitude: int = 32767) -> Samples:
    return np.random.default_rng(0).integers(-amplitude, amplitude, num_samples).astype(np.int16)


def tone() -> Samples:
    times = np.arange(5 * RATE) / RATE  # ends at once, which all frequencies are in
    return (32000 * np.sin(2 * np.pi * 440.3 * times)).astype(np.int16)


SOUNDS = {
    "speech": synthetic_speech(),
    "loud noise": noise(WINDOW),
    "quiet noise": noise(WINDOW, 3),
    "tone": tone(),
    "silence": np.zeros(WINDOW, np.int16),
    "constant": np.full(WINDOW, 32767, np.int16),
    "empty": noise(0),
    "one sample": noise(1),
    "one frame": noise(160),
    "ends in the last frame": noise(WINDOW - 199),
    "ends before the last frame": noise(WINDOW - 401),
    "longer than a window": noise(WINDOW + 12_345),
}


def expected_features(samples: Samples, num_mels: int) -> np.ndarray:
    from transformers import WhisperFeatureExtractor

    extractor = WhisperFeatureExtractor(feature_size=num_mels)
    floats = samples.astype(np.float32) / 32768
    features = extractor(floats, sampling_rate=RATE, return_tensors="np")["input_features"]
    return np.asarray(features[0])


@pytest.mark.parametrize("num_mels", [80, 128])
@pytest.mark.parametrize("name", SOUNDS)
def test_features_are_those_of_transformers(name: str, num_mels: int) -> None:
    features = log_mel(SOUNDS[name], audio_spec(num_mels))
    assert (features.dtype, features.shape) == (np.float32, (num_mels, 3000))
    np.testing.assert_allclose(features, expected_features(SOUNDS[name], num_mels), atol=1e-4)


@pytest.mark.parametrize("num_mels", [80, 128])
def test_features_of_recordings_are_those_of_transformers(num_mels: int) -> None:
    paths = sorted(RECORDINGS.glob("*.wav"))
    if not paths:
        pytest.skip("the recordings of Debian's pocketsphinx-testdata are not installed")
    for path in paths:
        with wave.open(str(path)) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
        features = log_mel(samples, audio_spec(num_mels))
        np.testing.assert_allclose(features, expected_features(samples, num_mels), atol=1e-4)


@pytest.mark.parametrize("num_mels", [80, 128])
def test_mel_filters_are_those_of_transformers(num_mels: int) -> None:
    from transformers import WhisperFeatureExtractor

    expected = WhisperFeatureExtractor(feature_size=num_mels).mel_filters
    np.testing.assert_allclose(mel_filters(RATE, 400, num_mels), expected, atol=1e-8)
