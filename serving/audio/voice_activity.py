"""Finds where somebody speaks in a recording, by the Silero model of voice activity."""

from typing import Any

import numpy as np

Samples = np.ndarray[Any, np.dtype[np.int16]]

SAMPLING_RATE = 16_000  # the only one that the model reads


def speech_spans(samples: Samples, max_speech_seconds: float = 30.0) -> list[tuple[int, int]]:
    """Return where somebody speaks, in order: (start, end) in samples.

    samples: i16 [samples], one channel, 16 kHz.
    max_speech_seconds: a longer span is divided at its longest pause.
    """
    raise NotImplementedError
