"""Makes the segments of a window, with their words, from the tokens that a model has written."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from serving.bundle.manifest import Manifest
from serving.pipelines.transcription.alignment import Positions, align_tokens, stack_attention
from serving.pipelines.transcription.decoding import DecodedWindow
from serving.pipelines.transcription.job import Segment, TranscriptionJob, Weights, Word
from serving.pipelines.transcription.windows import AudioChunk, Cut
from serving.pipelines.transcription.words import (
    TimedWord,
    median_seconds,
    merge_punctuation,
    shorten_at_pauses,
    shorten_at_sentences,
    split_words,
    time_words,
)
from serving.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class WindowPlace:
    """Where a window lies: it begins at `start` seconds of its chunk, and so many of its frames are
    sound of the recording.
    """

    chunk: AudioChunk
    start: float
    num_frames: int

    @property
    def recording_sample(self) -> int:
        """Return the sample of the recording at which the window begins."""
        return round(self.chunk.locate_start(self.start) * self.chunk.sampling_rate)


class SegmentWriter:
    """Makes the segments of one model's windows."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer) -> None:
        audio, num_positions = manifest.audio, manifest.limits.max_source_tokens
        assert audio is not None and num_positions is not None, "the model reads sound"
        self._tokenizer = tokenizer
        self._first_special = manifest.tokens.eos  # ids of text are lower
        self._step = audio.window_seconds / num_positions  # seconds of a position
        self._frames_per_position = audio.num_frames // num_positions

    def write(
        self,
        job: TranscriptionJob,
        language: str,
        decoded: DecodedWindow,
        cuts: Sequence[Cut],
        place: WindowPlace,
    ) -> list[Segment]:
        """Return the segments that have a text and a length, with index 0.

        language: decides how words are divided.
        """
        texts = [self._text(decoded.token_ids[cut.first : cut.last]) for cut in cuts]
        cuts = [cut for cut, text in zip(cuts, texts, strict=True) if text.strip()]
        cuts = [cut for cut in cuts if cut.start < cut.end]
        words: list[tuple[Word, ...]] = [()] * len(cuts)
        if job.returns_words and decoded.attention:
            words = self._words(job, "en" if job.translates else language, decoded, cuts, place)
        return [
            Segment(
                0,
                place.chunk.locate_start(place.start + cut.start),
                place.chunk.locate_end(place.start + cut.end),
                self._text(decoded.token_ids[cut.first : cut.last]),
                decoded.token_ids[cut.first : cut.last],
                place.chunk.locate_start(place.start),
                decoded.temperature,
                decoded.mean_logprob,
                decoded.compression_ratio,
                decoded.no_speech,
                segment_words,
            )
            for cut, segment_words in zip(cuts, words, strict=True)
        ]

    def _text(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(i for i in token_ids if i < self._first_special)

    def _words(
        self,
        job: TranscriptionJob,
        language: str,
        decoded: DecodedWindow,
        cuts: Sequence[Cut],
        place: WindowPlace,
    ) -> list[tuple[Word, ...]]:
        """Return the words of each segment."""
        weights = stack_attention(decoded.attention)  # [heads, tokens, positions]
        num_positions = max(place.num_frames // self._frames_per_position, 1)
        starts = align_tokens(weights[..., :num_positions])
        if len(decoded.attention) == len(decoded.token_ids):  # no end was generated
            starts = np.append(starts, num_positions)
        timed = [self._time_segment(decoded, cut, starts, language) for cut in cuts]
        median = median_seconds([word for words in timed for word in words])
        attention = weights.mean(axis=0) if job.returns_attention else None
        last_end = 0.0
        segments: list[tuple[Word, ...]] = []
        for cut, words in zip(cuts, timed, strict=True):
            words = merge_punctuation(shorten_at_sentences(words, 2 * median))
            words = shorten_at_pauses(words, cut.start, cut.end, last_end, median)
            last_end = words[-1].end if words else last_end
            segments.append(tuple(self._locate_words(decoded, words, place, attention)))
        return segments

    def _time_segment(
        self, decoded: DecodedWindow, cut: Cut, starts: Positions, language: str
    ) -> list[TimedWord]:
        """Return the words of a segment with the times of their tokens, punctuation apart."""
        ids = decoded.token_ids
        places = [i for i in range(cut.first, cut.last) if ids[i] < self._first_special]
        spans = split_words(self._tokenizer, [ids[i] for i in places], places, language)
        return time_words(spans, starts, self._step)

    def _locate_words(
        self,
        decoded: DecodedWindow,
        words: Sequence[TimedWord],
        place: WindowPlace,
        attention: Weights | None,
    ) -> Iterator[Word]:
        """Yield the words with their times in the recording.

        attention: f32 [tokens, positions], if it is reported.
        """
        chunk, window_start = place.chunk, place.chunk.locate_start(place.start)
        for word in words:
            tokens = slice(word.span.first, word.span.last)
            weights = None
            if attention is not None:
                mean = attention[tokens].mean(axis=0)
                weights = chunk.spread_weights(mean, place.start, self._step)
            yield Word(
                word.text,
                chunk.locate_start(place.start + word.start),
                chunk.locate_end(place.start + word.end),
                float(np.exp(decoded.logprobs[tokens]).mean()),
                window_start,
                weights,
            )
