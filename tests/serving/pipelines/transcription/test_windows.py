"""Tokens of windows become segments as in openai/whisper, and spans of speech become chunks."""

import numpy as np
import pytest

from serving.bundle.manifest import AudioSpec
from serving.pipelines.transcription.windows import (
    AudioChunk,
    Cut,
    cut_at_timestamps,
    pack_spans,
)

FIRST = 100
AUDIO = AudioSpec(
    *(16_000, 80, 3000, 160, 400),
    start=90,
    previous=91,
    no_speech=92,
    no_timestamps=99,
    first_timestamp=FIRST,
    timestamp_step=0.02,
    max_initial_timestamp=1.0,
)
SECOND = 16_000


def cut_by_loops(tokens: list[int], num_frames: int) -> tuple[list[Cut], int]:
    """The published loop of `transcribe`, on one window."""
    is_time = [token >= FIRST for token in tokens]
    single_ending = is_time[-2:] == [False, True]
    consecutive = [i + 1 for i in range(len(tokens) - 1) if is_time[i] and is_time[i + 1]]
    if consecutive:
        slices = consecutive + ([len(tokens)] if single_ending else [])
        cuts, last = [], 0
        for current in slices:
            part = tokens[last:current]
            cuts.append(Cut(last, current, (part[0] - FIRST) * 0.02, (part[-1] - FIRST) * 0.02))
            last = current
        if single_ending:
            return cuts, num_frames
        return cuts, (tokens[last - 1] - FIRST) * 2
    duration = num_frames * 160 / 16_000
    times = [token for token in tokens if token >= FIRST]
    if times and times[-1] != FIRST:
        duration = (times[-1] - FIRST) * 0.02
    return [Cut(0, len(tokens), 0.0, duration)], num_frames


@pytest.mark.parametrize(
    ("tokens", "num_frames"),
    [
        ([100, 1, 2, 150, 150, 3, 4, 300, 300, 5, 6], 3000),  # the last segment is unfinished
        ([100, 1, 2, 150, 150, 3, 4, 300, 300], 3000),
        ([100, 1, 2, 150, 150, 3, 4, 300], 3000),  # ends with one timestamp
        ([100, 1, 2, 150], 3000),
        ([100, 1, 2], 1234),
        ([1, 2, 3], 1234),  # without timestamps
        ([110, 110, 1, 160, 170, 2, 200, 200], 2000),  # a segment without text
        ([], 500),
        ([100], 500),
    ],
)
def test_windows_are_cut_as_published(tokens: list[int], num_frames: int) -> None:
    cuts, num_passed = cut_at_timestamps(tokens, AUDIO, num_frames)
    expected, expected_passed = cut_by_loops(tokens, num_frames)
    assert num_passed == expected_passed
    assert [(cut.first, cut.last) for cut in cuts] == [(cut.first, cut.last) for cut in expected]
    for cut, other in zip(cuts, expected, strict=True):
        assert (cut.start, cut.end) == pytest.approx((other.start, other.end))


def test_a_window_that_gets_nowhere_is_passed() -> None:
    _, num_passed = cut_at_timestamps([100, 100, 1, 2], AUDIO, 700)
    assert num_passed == 700


def test_spans_are_packed_into_windows() -> None:
    spans = [(0, 10 * SECOND), (20 * SECOND, 35 * SECOND), (40 * SECOND, 47 * SECOND)]
    first, second = pack_spans(spans, AUDIO)
    assert first.spans == tuple(spans[:2]) and second.spans == (spans[2],)
    assert list(pack_spans([], AUDIO)) == []


def test_a_span_longer_than_a_window_is_divided() -> None:
    chunks = list(pack_spans([(SECOND, 66 * SECOND)], AUDIO))
    ends = [31, 61, 66]
    assert [chunk.spans[-1][1] for chunk in chunks] == [end * SECOND for end in ends]


def test_times_of_a_chunk_are_times_of_the_recording() -> None:
    chunk = AudioChunk(((2 * SECOND, 5 * SECOND), (20 * SECOND, 24 * SECOND)), SECOND)
    assert chunk.locate_start(0.0) == 2.0 and chunk.locate_start(2.5) == 4.5
    # What ends where a span ends does not end in the next one, which begins there.
    assert chunk.locate_end(3.0) == 5.0 and chunk.locate_start(3.0) == 20.0
    assert chunk.locate_start(4.0) == 21.0 and chunk.locate_end(7.0) == 24.0
    assert chunk.locate_end(9.0) == 26.0  # times beyond its end go on


def test_the_sound_of_a_chunk_is_that_of_its_spans() -> None:
    recording = np.arange(100, dtype=np.int16)
    assert AudioChunk(((5, 8), (50, 52)), SECOND).select(recording).tolist() == [5, 6, 7, 50, 51]
    assert AudioChunk(((5, 8),), SECOND).select(recording).tolist() == [5, 6, 7]


def test_weights_over_a_chunk_lie_where_its_sound_lies() -> None:
    chunk = AudioChunk(((SECOND, 2 * SECOND), (4 * SECOND, 5 * SECOND)), SECOND)
    weights = np.arange(1, 5, dtype=np.float32)
    spread = chunk.spread_weights(weights, 0.0, 0.5)
    assert spread.tolist() == [1, 2, 0, 0, 0, 0, 3, 4]
    assert chunk.spread_weights(weights, 1.0, 0.5).tolist() == [1, 2, 3, 4]
    whole = AudioChunk(((0, 9 * SECOND),), SECOND)
    assert whole.spread_weights(weights, 0.0, 0.5) is weights
