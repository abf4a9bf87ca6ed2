"""The bodies of `/v1/audio/transcriptions` and `/v1/audio/translations`: forms with a recording."""

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr

from serving.api.http.bodies import NoOpValues, Refusals, RequestBody, option_field
from serving.api.http.uploads import File
from serving.errors import RequestError
from serving.pipelines.decoding import Decoding
from serving.pipelines.transcription.job import TEMPERATURES, Samples, TranscriptionJob
from serving.requests.parameters import NUM_BEAMS, OPTIONS, BeamParams, SamplingParams
from serving.requests.request import MAX_TIMEOUT_SECONDS
from serving.text.checks import check_text

# Of quotas, which count characters: people say about so many in a second.
CHARACTERS_PER_SECOND = 15
_NO_SPEAKERS = "no model here tells speakers apart"
ResponseFormat = Literal["json", "text", "srt", "verbose_json", "vtt"]


class ServerVad(BaseModel):
    """Voice activity detection decides where a recording is cut."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["server_vad"]


def _read_strategy(value: Any) -> Any:
    """Read an object that a form has as JSON, and refuse its options, which have no effect here."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = json.loads(value)  # its error is a ValueError
    if isinstance(value, dict) and (options := sorted(value.keys() - {"type"})):
        raise ValueError(f"{', '.join(options)}: where pauses are cut cannot be changed here")
    return value


def _in_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


Granularities = Annotated[list[Literal["word", "segment"]], BeforeValidator(_in_list)]


class TranscriptionBody(RequestBody):
    """The body of `POST /v1/audio/transcriptions`, a form with a file."""

    model_config = ConfigDict(extra="forbid")
    no_op_values: ClassVar[NoOpValues] = {"chunking_strategy": ("",), "language": ("",)}
    refusals: ClassVar[Refusals] = {
        "include": "log-probabilities are those of segments, in verbose_json",
        "keywords": "name the words in prompt",
        "known_speaker_names": _NO_SPEAKERS,
        "known_speaker_references": _NO_SPEAKERS,
        "languages": "give one language, or none, and it is identified",
    }
    translates: ClassVar[bool] = False

    file: File
    """The recording: WAV, FLAC, MP3, Ogg, Opus, M4A, MP4, WebM and others; of a video its sound."""
    model: str
    """The name of a model of `/v1/models` whose task is `transcribe`."""
    language: str | None = None
    """What is spoken, as a code such as "en". Without it the model identifies it in the first
    window."""
    prompt: str = ""
    """Text that could come before the recording: names and spelling follow it."""
    response_format: ResponseFormat = "json"
    """json and text have the text alone, verbose_json its segments with times, srt and vtt are
    subtitles."""
    temperature: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.0
    """0: the likeliest text, and where that is repetitive or improbable it is written again at 0.2,
    0.4 and so on up to 1. Above 0: this temperature alone."""
    timestamp_granularities: Granularities = Field(default=["segment"])
    """What verbose_json has times of: "segment", "word" or both."""
    stream: bool = False
    """Sends the text in pieces, as server-sent events. An addition: verbose_json may be streamed,
    too."""
    chunking_strategy: Annotated[Literal["auto"] | ServerVad, BeforeValidator(_read_strategy)] | (
        None
    ) = None
    """"auto", or an object of type "server_vad": the recording is cut where nobody speaks, and its
    parts are transcribed at once. Without it each window begins where the one before ends."""
    num_beams: int | None = option_field(OPTIONS[NUM_BEAMS], may_be_null=True)
    seed: int | None = option_field(OPTIONS["seed"])
    return_attention: bool = False
    """Returns with each word of verbose_json what it attends to, and the spectrograms of the
    windows."""
    priority: int = 0
    """Requests of lower values come first; those of the same value as they came."""
    timeout_seconds: float | None = None
    """Ends the request with an error if it takes longer. Without it a recording may take as long as
    it lasts, and as long as other requests may."""
    _samples: Samples | None = PrivateAttr(None)
    _seconds: float = PrivateAttr(0.0)

    @property
    def num_characters(self) -> int:
        """Return the characters that the sound counts as."""
        return math.ceil(self._seconds * CHARACTERS_PER_SECOND)

    @property
    def returns_words(self) -> bool:
        return "word" in self.timestamp_granularities

    def check(self, max_characters: int) -> None:
        check_text("prompt", self.prompt, max_characters)
        if not self.file.size:
            raise RequestError("file", self.file.filename, "is empty")
        is_verbose = self.response_format == "verbose_json"
        if "timestamp_granularities" in self.model_fields_set and not is_verbose:
            message = "needs response_format verbose_json"
            raise RequestError("timestamp_granularities", self.timestamp_granularities, message)
        if self.return_attention and not (is_verbose and self.returns_words):
            message = "needs response_format verbose_json, and word in timestamp_granularities"
            raise RequestError("return_attention", True, message)
        if self.return_attention and self.chunking_strategy is not None:
            message = "needs chunking_strategy to be absent: without it windows are whole"
            raise RequestError("return_attention", True, message)
        if self.stream and self.response_format in ("srt", "vtt"):
            message = "is not streamed: ask for json, text or verbose_json"
            raise RequestError("response_format", self.response_format, message)

    def with_defaults(self, generation: Mapping[str, Any]) -> Self:
        num_beams = generation.get(NUM_BEAMS, 1)
        if self.num_beams is not None or num_beams == 1:
            return self
        return self.model_copy(update={NUM_BEAMS: num_beams})

    def with_sound(
        self, samples: Samples, language: str | None, sampling_rate: int, timeout_seconds: float
    ) -> Self:
        """Return the body with the samples of its file.

        language: as the model spells it. timeout_seconds: of requests without their own; longer
            recordings have as long as they last.
        """
        body = self.model_copy(update={"language": language})
        body._samples, body._seconds = samples, len(samples) / sampling_rate
        if self.timeout_seconds is None and body._seconds > timeout_seconds:
            body.timeout_seconds = min(body._seconds, MAX_TIMEOUT_SECONDS)
        return body

    def job(self, request_id: str) -> TranscriptionJob:
        assert self._samples is not None
        beam = None if self.num_beams in (None, 1) else BeamParams(num_beams=self.num_beams)
        return TranscriptionJob(
            request_id=request_id,
            samples=self._samples,
            language=self.language,
            translates=self.translates,
            prompt=self.prompt,
            temperatures=(self.temperature,) if self.temperature else TEMPERATURES,
            decoding=Decoding(
                sampling=SamplingParams(self.temperature, seed=self.seed),
                beam=beam,
                priority=self.priority,
                timeout_seconds=self.timeout_seconds,
            ),
            is_parallel=self.chunking_strategy is not None,
            returns_words=self.returns_words,
            returns_attention=self.return_attention,
        )


class SpeechTranslationBody(TranscriptionBody):
    """The body of `POST /v1/audio/translations`. OpenAI's has no language, stream,
    chunking_strategy and timestamp_granularities, which are the same as in transcriptions.
    """

    translates: ClassVar[bool] = True
