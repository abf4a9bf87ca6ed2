"""Transcription jobs and their results.

All are plain values, because they are sent to other processes.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from serving.pipelines.decoding import DEFAULT_DECODING, Decoding
from serving.pipelines.jobs import StreamedJob
from serving.requests.parameters import TokenIds

Samples = np.ndarray[Any, np.dtype[np.int16]]
Weights = np.ndarray[Any, np.dtype[np.float32]]

# A window is decoded again at the next temperature while its text is repetitive or improbable, as
# in Radford et al. 2022, section 4.5.
TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True, slots=True)
class TranscriptionJob(StreamedJob["Transcription", "Segment | Transcription"]):
    """Asks for the text of a recording.

    samples: i16 [samples], one channel, at the model's sampling rate.
    language: code of what is spoken; None: the model identifies it in the first window.
    translates: write English, whatever is spoken.
    prompt: text that is said to come before the recording: names and spelling follow it.
    temperatures: tried one after another. Above 0 the best of `num_samples` is taken.
    decoding: its `beam`, if any, is used at temperature 0.
    has_timestamps: whether the model writes when its segments begin and end.
    is_parallel: windows are cut where nobody speaks and are all decoded at once. Otherwise a
        window begins where the segments of the one before end, and reads the text before.
    reads_previous_text: whether a window reads the text of the windows before; not in parallel.
    returns_words: report when each word begins and ends.
    returns_attention: report with each word what it attends to; needs `returns_words`.
    compression_ratio_threshold: a text is repetitive if zlib makes it shorter by more than this.
    logprob_threshold: a text with a lower mean log-probability of its tokens is improbable.
    no_speech_threshold: a window with a higher probability of silence is skipped, if its text is
        improbable, too.
    """

    request_id: str
    samples: Samples = field(repr=False)
    language: str | None = None
    translates: bool = False
    prompt: str = ""
    temperatures: tuple[float, ...] = TEMPERATURES
    num_samples: int = 5
    decoding: Decoding = DEFAULT_DECODING
    has_timestamps: bool = True
    is_parallel: bool = False
    reads_previous_text: bool = True
    returns_words: bool = False
    returns_attention: bool = False
    compression_ratio_threshold: float | None = 2.4
    logprob_threshold: float | None = -1.0
    no_speech_threshold: float | None = 0.6


@dataclass(frozen=True, slots=True)
class Word:
    """A word with the space before it, and when it is spoken, in seconds of the recording.

    attention: f32 [positions], over the window that begins at `window_start` seconds; its
        positions are equally long. None unless it is asked for.
    """

    text: str
    start: float
    end: float
    probability: float
    window_start: float = 0.0
    attention: Weights | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a transcript, as the model cuts it.

    start, end: seconds of the recording. window_start: seconds at which its window begins.
    temperature: at which its window was decoded. mean_logprob, compression_ratio, no_speech: of its
        window; see `TranscriptionJob` for the thresholds on them.
    """

    index: int
    start: float
    end: float
    text: str
    token_ids: TokenIds
    window_start: float
    temperature: float
    mean_logprob: float
    compression_ratio: float
    no_speech: float
    words: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True)
class Transcription:
    """The text of a recording.

    language: code of what is spoken. language_probability: 1 if the job names the language.
    seconds: of the recording. num_generated_tokens, num_input_tokens: of all windows and
    temperatures; positions of the encoder and tokens of prompts are input.
    """

    language: str
    language_probability: float
    seconds: float
    segments: tuple[Segment, ...]
    num_generated_tokens: int = 0
    num_input_tokens: int = 0

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments).strip()
