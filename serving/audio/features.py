"""Turns sound into the spectrograms that Whisper reads (Radford et al. 2022, section 2.2).

A spectrogram has a column for each `hop` samples: how much energy the `fft_size` samples around it
have in each mel band, in powers of ten.
"""

from functools import cache
from typing import Any

import numpy as np

from serving.bundle.manifest import AudioSpec

Samples = np.ndarray[Any, np.dtype[np.int16]]
Floats = np.ndarray[Any, np.dtype[np.float32]]

_FULL_SCALE = 32768  # an i16 sample of this size is 1.0
_FLOOR = 1e-10  # of energy: silence has a logarithm, too
_RANGE = 8.0  # what is quieter than the loudest by more powers of ten is cut to that
_BLOCK_FRAMES = 256  # whose spectra stay in the processor's cache


def log_mel(samples: Samples, spec: AudioSpec) -> Floats:
    """Return the features of one window: f32 [num_mels, num_frames], about -1 to 1.

    samples: i16 [samples], one channel, at the model's sampling rate. They are cut to the window,
        or silence is added to them.

    The same as in openai/whisper, `log_mel_spectrogram`, and as WhisperFeatureExtractor of
    transformers, to 1e-4.
    """
    window = np.zeros(spec.window_samples, np.float32)
    num_samples = min(len(samples), spec.window_samples)
    window[:num_samples] = samples[:num_samples]
    window /= _FULL_SCALE
    half = spec.fft_size // 2
    padded = np.pad(window, half, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, spec.fft_size)[:: spec.hop]
    filters = mel_filters(spec.sampling_rate, spec.fft_size, spec.num_mels)
    hann = _hann(spec.fft_size)
    energies = np.zeros((spec.num_frames, spec.num_mels), np.float32)
    num_heard = spec.num_frames  # frames with a sample that is not added silence
    if num_samples + 2 * half <= spec.window_samples:  # no frame mirrors the samples at the end
        num_heard = min(spec.num_frames, (num_samples + half) // spec.hop + 1)
    for begin in range(0, num_heard, _BLOCK_FRAMES):
        end = min(begin + _BLOCK_FRAMES, num_heard)
        spectrum = np.fft.rfft(frames[begin:end] * hann)
        power = spectrum.real**2 + spectrum.imag**2
        np.matmul(power, filters, out=energies[begin:end])
    logarithms = np.log10(np.maximum(energies, _FLOOR))
    features = (np.maximum(logarithms, logarithms.max() - _RANGE) + 4.0) / 4.0
    return np.ascontiguousarray(features.T, dtype=np.float32)


@cache
def mel_filters(sampling_rate: int, fft_size: int, num_mels: int) -> Floats:
    """Return what each frequency adds to each mel band: f32 [fft_size / 2 + 1, num_mels].

    The bands are triangles of the same area on Slaney's mel scale, from 0 Hz to half the sampling
    rate (Slaney 1998, Auditory Toolbox; librosa, `filters.mel`).
    """
    frequencies = np.linspace(0, sampling_rate / 2, fft_size // 2 + 1)
    highest = _hertz_to_mels(sampling_rate / 2)
    corners = _mels_to_hertz(np.linspace(0, highest, num_mels + 2))
    lower, centre, upper = corners[:-2], corners[1:-1], corners[2:]
    rising = (frequencies[:, None] - lower) / (centre - lower)
    falling = (upper - frequencies[:, None]) / (upper - centre)
    triangles = np.maximum(0, np.minimum(rising, falling))
    filters: Floats = (triangles * 2 / (upper - lower)).astype(np.float32)
    return filters


# Slaney's scale is linear up to 1 kHz, which are 15 mels, and then has 27 mels for a factor of 6.4.
_LINEAR_HERTZ, _LINEAR_MELS = 1000.0, 15.0
_MELS_PER_OCTAVE_OF_E = 27 / np.log(6.4)


def _hertz_to_mels(hertz: float) -> float:
    if hertz < _LINEAR_HERTZ:
        return hertz * _LINEAR_MELS / _LINEAR_HERTZ
    return float(_LINEAR_MELS + np.log(hertz / _LINEAR_HERTZ) * _MELS_PER_OCTAVE_OF_E)


def _mels_to_hertz(mels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    linear = mels * _LINEAR_HERTZ / _LINEAR_MELS
    logarithmic = _LINEAR_HERTZ * np.exp((mels - _LINEAR_MELS) / _MELS_PER_OCTAVE_OF_E)
    return np.where(mels < _LINEAR_MELS, linear, logarithmic)


@cache
def _hann(size: int) -> Floats:
    """Return a periodic Hann window: f32 [size]."""
    window: Floats = np.hanning(size + 1)[:-1].astype(np.float32)
    return window
