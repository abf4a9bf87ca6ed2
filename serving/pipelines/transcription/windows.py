"""Cuts recordings into chunks, and what a model writes about a window into segments.

A window is what the encoder reads at once, 30 seconds. A recording that is longer is decoded window
after window, or as chunks of speech of at most that length.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np

from serving.bundle.manifest import AudioSpec
from serving.pipelines.transcription.job import Samples, Weights

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Cut:
    """A segment of a window's tokens: those from `first` to before `last`.

    start, end: seconds of the window.
    """

    first: int
    last: int
    start: float
    end: float


def cut_at_timestamps(
    token_ids: Sequence[int], audio: AudioSpec, num_frames: int
) -> tuple[list[Cut], int]:
    """Return the segments of a window, and the number of frames after which the next one begins.

    Segments end between two timestamps. What follows the last pair is not finished within the
    window, unless it ends with a timestamp: the next window begins there. As in openai/whisper,
    `transcribe`.

    num_frames: of the window that are sound of the recording.
    """
    seconds_per_frame = audio.hop / audio.sampling_rate
    is_timestamp = [token_id >= audio.first_timestamp for token_id in token_ids]
    ends = [i for i in range(1, len(token_ids)) if is_timestamp[i - 1] and is_timestamp[i]]
    ends_with_one = is_timestamp[-2:] == [False, True]

    def seconds_at(place: int) -> float:
        return (token_ids[place] - audio.first_timestamp) * audio.timestamp_step

    if not ends:
        times = [seconds_at(place) for place, is_time in enumerate(is_timestamp) if is_time]
        end = times[-1] if times and times[-1] > 0 else num_frames * seconds_per_frame
        return [Cut(0, len(token_ids), 0.0, end)], num_frames
    if ends_with_one:
        ends.append(len(token_ids))
    starts = [0, *ends[:-1]]
    cuts = [
        Cut(first, last, seconds_at(first), seconds_at(last - 1))
        for first, last in zip(starts, ends, strict=True)
    ]
    if ends_with_one:
        return cuts, num_frames
    num_passed = round(cuts[-1].end / seconds_per_frame)
    return cuts, num_passed or num_frames  # or the same window would come again


@dataclass(frozen=True)
class AudioChunk:
    """Sound that is decoded by itself: spans of a recording, without what lies between them.

    spans: (start, end) in samples of the recording, in order.
    """

    spans: tuple[Span, ...]
    sampling_rate: int

    def select(self, recording: Samples) -> Samples:
        """Return the samples of the spans, one after another."""
        if len(self.spans) == 1:
            start, end = self.spans[0]
            return recording[start:end]
        return np.concatenate([recording[start:end] for start, end in self.spans])

    @cached_property
    def _ends(self) -> list[int]:
        """Return the sample of the chunk at which each span ends."""
        return list(accumulate(end - start for start, end in self.spans))

    def locate_start(self, seconds: float) -> float:
        """Return the seconds of the recording at which what begins in the chunk begins."""
        number = int(np.searchsorted(self._ends, self._sample(seconds), "right"))
        return self._locate(number, seconds)

    def locate_end(self, seconds: float) -> float:
        """Return the seconds of the recording at which what ends in the chunk ends."""
        number = int(np.searchsorted(self._ends, self._sample(seconds), "left"))
        return self._locate(number, seconds)

    def spread_weights(self, weights: Weights, window_start: float, step: float) -> Weights:
        """Return weights over a window of the chunk as weights over the recording from where the
        window begins: f32 [positions], 0 where the chunk leaves sound out.

        window_start: seconds of the chunk. step: seconds of a position.
        """
        if len(self.spans) == 1:
            return weights
        begin = self.locate_start(window_start)
        places = [
            round((self.locate_start(window_start + number * step) - begin) / step)
            for number in range(len(weights))
        ]
        spread = np.zeros(places[-1] + 1, np.float32)
        np.add.at(spread, places, weights)
        return spread

    def _sample(self, seconds: float) -> int:
        return round(seconds * self.sampling_rate)

    def _locate(self, number: int, seconds: float) -> float:
        number = min(number, len(self.spans) - 1)
        pause = self.spans[number][1] - self._ends[number]
        return seconds + pause / self.sampling_rate


def pack_spans(spans: Sequence[Span], audio: AudioSpec) -> Iterator[AudioChunk]:
    """Yield chunks of at most a window that hold all spans, as the batched pipeline of
    faster-whisper does.
    """
    packed: list[Span] = []
    room = audio.window_samples
    for start, end in _divide_long_spans(spans, audio.window_samples):
        if end - start > room:
            yield AudioChunk(tuple(packed), audio.sampling_rate)
            packed, room = [], audio.window_samples
        packed.append((start, end))
        room -= end - start
    if packed:
        yield AudioChunk(tuple(packed), audio.sampling_rate)


def _divide_long_spans(spans: Sequence[Span], max_samples: int) -> Iterator[Span]:
    for start, end in spans:
        for begin in range(start, end, max_samples):
            yield begin, min(begin + max_samples, end)
