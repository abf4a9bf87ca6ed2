"""`attendant transcribe` writes down what is said in recordings, and translates it."""

import asyncio
import json
import sys
import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from serving.bundle.folders import BUILD_FOLDER
from serving.commands.options import (
    beam_option,
    device_option,
    end_quietly_with_the_reader,
    engine_config,
    find_bundle,
    languages_of,
    list_matching_bundles,
    model_option,
    translation_decoding,
)
from serving.errors import RequestError
from serving.pipelines.routing import find_translator
from serving.pipelines.streams import in_order
from serving.storage.files import replacing
from serving.text.languages import is_same_language

if TYPE_CHECKING:
    from serving.engine.config import EngineConfig
    from serving.pipelines.cards import ModelCard
    from serving.pipelines.catalog import Model, Translator
    from serving.pipelines.transcription.job import Segment, Transcription, TranscriptionJob
    from serving.pipelines.translation.job import TranslationJob

_FORMATS = ("txt", "srt", "vtt", "json")
_FILES_AT_ONCE = 8  # their windows fill the engine's batch; their samples are in memory
_BAR_DELAY_SECONDS = 2.0
_DECIMALS = 3  # of seconds
_ADVICE = "`attendant pull whisper-base` fetches one"


@click.command()
@model_option("transcribe", advice=_ADVICE)
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Write to this file, as its ending says (.txt, .srt, .vtt, .json), or a file for each of"
    " several FILES into this folder.",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(_FORMATS),
    help="[default: by the ending of -o; srt in a folder; else txt]",
)
@click.option("--language", help="What is spoken, e.g. fr.  [default: the model identifies it]")
@click.option("--translate", "translates", is_flag=True, help="Write English, by the same model.")
@click.option(
    "--to", "translation_target", metavar="CODE", help="Translate the transcript, e.g. into fr."
)
@click.option(
    "--translator",
    type=click.Path(path_type=Path),
    help="The bundle that --to translates with.  [default: as for `attendant translate`]",
)
@click.option(
    "--words", is_flag=True, help="When each word is said: in .json; subtitles are short."
)
@click.option("--prompt", default="", help="A text that could come before: spelling, names.")
@beam_option
@click.option(
    "--temperature",
    type=click.FloatRange(0, 1),
    help="One temperature.  [default: 0, and up to 1 where the text is repetitive or improbable]",
)
@click.option("--parallel", is_flag=True, help="Cut where nobody speaks, and decode all at once.")
@device_option
@click.argument(
    "files",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
)
def transcribe(
    model: Path,
    output: Path | None,
    format_name: str | None,
    translator: Path | None,
    device: str,
    files: tuple[Path, ...],
    **options: Any,
) -> None:
    """Write down what is said in each FILE: sound, or a video, of most formats.

    The whole text goes to standard output, or with -o into files of text, subtitles or JSON, which
    also has probabilities. A file that cannot be read is reported, and the others are transcribed.
    This needs pip install 'attendant-server[speech]'

    \b
    Examples:
      attendant transcribe talk.mp3 --model build/bundles/whisper-base
      attendant transcribe talk.mp4 -o talk.srt
      attendant transcribe talk.mp3 --to fr -o talk.fr.vtt
      attendant transcribe *.m4a -o transcripts/ --language fr --prompt 'Nantes, Rennes.'
      attendant transcribe talk.mp4 --parallel --words --format json
    """
    from serving.audio.decoding import require_libraries

    end_quietly_with_the_reader()
    if options["words"] and options["translation_target"]:
        raise click.UsageError("--words and --to: words of a translation have no times")
    if translator is not None and options["translation_target"] is None:
        raise click.UsageError("--translator needs --to CODE")
    require_libraries()
    places = _choose_places(files, output, format_name, options["translation_target"])
    config = engine_config(device)
    if not asyncio.run(_transcribe(model, config, options, translator, places)):
        sys.exit(2)


@dataclass(frozen=True)
class _Place:
    """Where the transcript of a file goes. path: None for standard output, where each of several
    files has a line.
    """

    file: Path
    path: Path | None
    format_name: str
    is_line: bool = False

    def write(self, transcription: "Transcription") -> None:
        text = _render(transcription, self.format_name, self.is_line)
        if self.path is None:
            sys.stdout.write(text)
            sys.stdout.flush()
            return
        with replacing(self.path) as begun:
            begun.write_text(text, encoding="utf-8")


def _choose_places(
    files: Sequence[Path], output: Path | None, format_name: str | None, target: str | None
) -> list[_Place]:
    """Raises UsageError before any work for an output that could not be written."""
    is_one = len(files) == 1
    if output is None:
        if not is_one and format_name in ("srt", "vtt"):
            raise click.UsageError("subtitles of several FILES need -o FOLDER")
        return [_Place(file, None, format_name or "txt", is_line=not is_one) for file in files]
    if is_one and output.suffix and not output.is_dir():
        suffix = output.suffix.lower().removeprefix(".")
        if suffix not in _FORMATS or format_name not in (None, suffix):
            endings = f".{format_name}" if format_name else ", ".join(f".{f}" for f in _FORMATS)
            raise click.UsageError(f"-o {output}: the name must end with {endings}")
        if not output.parent.is_dir():
            raise click.UsageError(f"-o {output}: there is no folder {output.parent}")
        places = [_Place(files[0], output, suffix)]
    else:
        suffix = format_name or "srt"
        ending = f"{target}.{suffix}" if target else suffix
        places = [_Place(file, output / f"{file.stem}.{ending}", suffix) for file in files]
    paths = [place.path for place in places]
    for place in places:
        assert place.path is not None
        if paths.count(place.path) > 1 or place.file.resolve() == place.path.resolve():
            raise click.UsageError(f"{place.file} would be written over, as {place.path}")
    if places[0].path is not None and places[0].path.parent == output:
        output.mkdir(parents=True, exist_ok=True)
    return places


async def _transcribe(
    path: Path,
    config: "EngineConfig",
    options: dict[str, Any],
    translator: Path | None,
    places: Sequence[_Place],
) -> bool:
    """Write the transcripts, and return whether all files could be read."""
    from tqdm import tqdm

    from serving.bundle.manifest import Task
    from serving.pipelines.loading import open_model

    are_all_read = True
    async with AsyncExitStack() as stack:
        catalog = await stack.enter_async_context(open_model(path, config))
        [card] = catalog.local_cards
        model = await catalog.get_model(card.name, Task.TRANSCRIBE)
        translators = _Translators(options["translation_target"], translator, config, stack)
        if options["translation_target"] is not None:
            translators.check(_written_language(card, options))
        bar = stack.enter_context(tqdm(unit=" s", disable=None, delay=_BAR_DELAY_SECONDS))

        async def work(place: _Place) -> "tuple[_Place, Transcription | RequestError]":
            try:
                return place, await _transcribe_file(model, options, place.file, bar)
            except RequestError as error:
                if error.field != "file":
                    raise
                return place, error

        results = await stack.enter_async_context(aclosing(in_order(work, places, _FILES_AT_ONCE)))
        async for place, result in results:
            if isinstance(result, RequestError):
                click.echo(f"attendant: {place.file} {result.message}", err=True)
                are_all_read = False
                continue
            if not result.segments:
                click.echo(f"attendant: nobody speaks in {place.file}", err=True)
            if options["translation_target"] is not None:
                source = "en" if options["translates"] else result.language
                segments = await translators.translate(source, result.segments, place.file.name)
                result = replace(result, segments=tuple(segments))
            place.write(result)
    return are_all_read


def _written_language(card: "ModelCard", options: dict[str, Any]) -> str | None:
    """Return the language of the transcripts; None before the model has identified it."""
    if options["translates"]:
        return "en"
    languages = card.source_languages
    return options["language"] or (languages[0] if len(languages) == 1 else None)


async def _transcribe_file(
    model: "Model", options: dict[str, Any], file: Path, bar: Any
) -> "Transcription":
    """Return what is said in a file. The bar goes on by its seconds."""
    from serving.audio.decoding import decode_audio
    from serving.pipelines.transcription.job import Transcription

    assert model.card.audio is not None
    sampling_rate = model.card.audio.sampling_rate
    samples = await decode_audio(file, sampling_rate, str(file))
    seconds = round(len(samples) / sampling_rate)
    bar.total = (bar.total or 0) + seconds
    num_done = 0
    async with aclosing(model.stream(_make_job(options, samples))) as parts:
        async for part in parts:
            if isinstance(part, Transcription):
                bar.update(seconds - num_done)
                return part
            num_passed = max(0, min(round(part.end), seconds) - num_done)
            bar.update(num_passed)
            num_done += num_passed
    raise AssertionError("a stream ends with the transcription")


def _make_job(options: dict[str, Any], samples: Any) -> "TranscriptionJob":
    from serving.pipelines.decoding import Decoding
    from serving.pipelines.transcription.job import TEMPERATURES, TranscriptionJob
    from serving.requests.parameters import BeamParams

    num_beams, temperature = options["num_beams"], options["temperature"]
    beam = None if num_beams in (None, 1) else BeamParams(num_beams=num_beams)
    return TranscriptionJob(
        request_id=uuid.uuid4().hex,  # a file may be named twice
        samples=samples,
        language=options["language"],
        translates=options["translates"],
        prompt=options["prompt"],
        temperatures=TEMPERATURES if temperature is None else (temperature,),
        decoding=Decoding(beam=beam),
        is_parallel=options["parallel"],
        returns_words=options["words"],
    )


class _Translators:
    """The bundles that translate transcripts into one language, each loaded once."""

    def __init__(
        self, target: str, bundle: Path | None, config: "EngineConfig", stack: AsyncExitStack
    ) -> None:
        self._target, self._bundle, self._config, self._stack = target, bundle, config, stack
        self._loaded: dict[str, tuple[Translator, TranslationJob]] = {}

    def check(self, source: str | None) -> None:
        """Raise UsageError or RequestError if nothing can translate. source: None if not known."""
        from serving.bundle.opening import open_manifest
        from serving.text.languages import match_codes

        if self._bundle is None:
            if not is_same_language(source or "", self._target):
                self._require_bundle(source)
            return
        targets = open_manifest(self._bundle).target_languages
        if not match_codes(self._target, targets):
            message = f"{self._bundle} translates into {', '.join(targets) or 'no language'}"
            raise click.UsageError(f"--to {self._target}: {message}")

    def _require_bundle(self, source: str | None) -> None:
        if not list_matching_bundles(("translate",), (source, self._target)):
            languages = f"from {source} into {self._target}" if source else f"into {self._target}"
            message = f"no bundle in {BUILD_FOLDER} translates {languages}"
            advice = "`attendant pull firefox` lists pairs to fetch; or give --translator BUNDLE"
            raise click.UsageError(f"--to {self._target}: {message}; {advice}")

    async def translate(
        self, source: str, segments: "Sequence[Segment]", name: str
    ) -> "Sequence[Segment]":
        from serving.documents.transcripts import translate_segments

        if is_same_language(source, self._target):
            return segments
        if source not in self._loaded:
            self._loaded[source] = await self._load(source)
        translator, job = self._loaded[source]
        return await translate_segments(translator, replace(job, request_id=name), segments)

    async def _load(self, source: str) -> "tuple[Translator, TranslationJob]":
        from serving.pipelines.loading import open_model
        from serving.pipelines.translation.job import TranslationJob

        if self._bundle is None:
            self._require_bundle(source)
        path = self._bundle or find_bundle(("translate",), (source, self._target))
        catalog = await self._stack.enter_async_context(open_model(path, self._config))
        [card] = catalog.local_cards
        languages = languages_of(card, source, self._target)
        translator = await find_translator(catalog, card.name, *languages)
        return translator, TranslationJob("", (), *languages, translation_decoding(card, {}))


def _render(transcription: "Transcription", format_name: str, is_line: bool) -> str:
    from serving.pipelines.transcription.subtitles import write_srt, write_text, write_vtt

    if format_name == "json":
        text = json.dumps(
            _describe(transcription), ensure_ascii=False, indent=None if is_line else 2
        )
        return f"{text}\n"
    if is_line:
        return f"{' '.join(transcription.text.split())}\n"
    write = {"txt": write_text, "srt": write_srt, "vtt": write_vtt}[format_name]
    return write(transcription.segments)


def _describe(transcription: "Transcription") -> dict[str, Any]:
    """Return the JSON of a transcription, with the names of OpenAI's `verbose_json`."""
    return {
        "language": transcription.language,
        "language_probability": transcription.language_probability,
        "duration": round(transcription.seconds, _DECIMALS),
        "text": transcription.text,
        "segments": [*map(_describe_segment, transcription.segments)],
    }


def _describe_segment(segment: "Segment") -> dict[str, Any]:
    words = [
        {
            "word": word.text.strip(),
            "start": round(word.start, _DECIMALS),
            "end": round(word.end, _DECIMALS),
            "probability": word.probability,
        }
        for word in segment.words
    ]
    return {
        "id": segment.index,
        "start": round(segment.start, _DECIMALS),
        "end": round(segment.end, _DECIMALS),
        "text": segment.text,
        "temperature": segment.temperature,
        "avg_logprob": segment.mean_logprob,
        "compression_ratio": segment.compression_ratio,
        "no_speech_prob": segment.no_speech,
        **({"words": words} if words else {}),
    }
