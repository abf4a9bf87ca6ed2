"""Finds where somebody speaks in a recording, by the Silero model of voice activity."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from serving.audio.silero import CHUNK_SAMPLES, SAMPLING_RATE, load_silero

Samples = np.ndarray[Any, np.dtype[np.int16]]
Floats = np.ndarray[Any, np.dtype[np.float32]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
Span = tuple[int, int]

# As in faster-whisper, `VadOptions`, where all but the last have the same values.
_THRESHOLD = 0.5
_END_THRESHOLD = 0.35  # speech goes on while it is a little less probable
_MIN_SILENCE_CHUNKS = round(2.0 * SAMPLING_RATE / CHUNK_SAMPLES)
_PADDING = round(0.4 * SAMPLING_RATE)
_MIN_SPEECH_CHUNKS = 3  # 0.1 s; a click is shorter


def speech_spans(samples: Samples, max_seconds: float = 30.0) -> list[Span]:
    """Return where somebody speaks, in order: (start, end) in samples.

    samples: i16 [samples], one channel, 16 kHz.
    max_seconds: a longer span is divided at the longest pause in the second half of this time, or
        where speech is least probable.

    Pauses of less than 2 s are inside of spans, and spans begin and end with 0.4 s without speech,
    but not where they are divided. Raises ModuleNotFoundError where the model's library is not
    installed.
    """
    probabilities = load_silero().compute_probabilities(samples)
    is_speech = _speech_chunks(probabilities)
    max_chunks = int(max_seconds * SAMPLING_RATE - 2 * _PADDING) // CHUNK_SAMPLES
    spans = []
    for start, end in _join_runs(_runs(is_speech)):
        cuts = [start, *_cuts(is_speech, probabilities, start, end, max_chunks), end]
        places = [cut * CHUNK_SAMPLES for cut in cuts]
        places[0] = max(0, places[0] - _PADDING)
        places[-1] = min(len(samples), places[-1] + _PADDING)
        spans += list(pairwise(places))
    return spans


def _speech_chunks(probabilities: Floats) -> Flags:
    """Return which chunks are speech: bool [chunks]."""
    is_speech = np.zeros(len(probabilities), bool)
    speaks = False
    for index, probability in enumerate(probabilities.tolist()):
        speaks = probability >= (_END_THRESHOLD if speaks else _THRESHOLD)
        is_speech[index] = speaks
    return is_speech


def _runs(flags: Flags) -> list[Span]:
    """Return where flags are set: (start, end) of each run of them."""
    edges = np.flatnonzero(np.diff(flags, prepend=False, append=False)).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def _join_runs(runs: list[Span]) -> list[Span]:
    """Join what only short pauses divide, and leave out what is too short for speech."""
    spans: list[Span] = []
    for start, end in runs:
        if spans and start - spans[-1][1] < _MIN_SILENCE_CHUNKS:
            start = spans.pop()[0]
        spans.append((start, end))
    return [(start, end) for start, end in spans if end - start >= _MIN_SPEECH_CHUNKS]


def _cuts(
    is_speech: Flags, probabilities: Floats, start: int, end: int, max_chunks: int
) -> Iterator[int]:
    """Yield where a span of chunks is divided, so that no part is longer than `max_chunks`."""
    while end - start > max_chunks:
        half = start + max_chunks // 2
        pauses = _runs(~is_speech[half : start + max_chunks])
        if pauses:
            pause_start, pause_end = max(pauses, key=lambda pause: pause[1] - pause[0])
            start = half + (pause_start + pause_end) // 2
        else:
            start = half + int(probabilities[half : start + max_chunks].argmin())
        yield start
