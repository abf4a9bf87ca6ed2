"""`attendant bench-transcribe`: compare the transcription of recordings with faster-whisper."""

import asyncio
import json
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loadtest.bench.utterances import (
    NoUtterances,
    decode_utterances,
    find_utterances,
    join_recordings,
)
from serving.engine.runtime.machine import available_cpus

if TYPE_CHECKING:
    from serving.audio.decoding import Samples
    from serving.pipelines.loading import LoadedModel

NUM_FILES = 8
PEER_PACKAGES = "`pip install faster-whisper jiwer transformers`"


@dataclass(frozen=True)
class Settings:
    """What both sides do alike.

    beam: number of beams. is_parallel: cut recordings where nobody speaks and decode the parts
    together. temperatures: tried one after another.
    """

    beam: int
    is_parallel: bool
    temperatures: tuple[float, ...]


Transcribe = Callable[[Sequence["Samples"]], list[str]]


@click.command("bench-transcribe", context_settings={"show_default": True})
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option(
    "--peer",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="The same weights as a folder of faster-whisper.",
)
@click.option("--beam", type=click.IntRange(1), default=5, help="Beams of both.")
@click.option("--parallel", "is_parallel", is_flag=True, help="Cut at pauses, decode in batches.")
@click.option("--fallback/--no-fallback", default=True, help="Try temperatures above 0, too.")
@click.option("--seconds", type=click.FloatRange(1), default=120.0, help="Length of the one file.")
@click.option("--rounds", type=click.IntRange(1), default=3, help="Turns of each that count.")
@click.option("--cores", type=click.IntRange(1), show_default="all", help="Threads of each.")
@click.option("--utterances", type=click.IntRange(0), default=200, help="For word errors; 0: none.")
@click.option("--json", "wants_json", is_flag=True, help="Report as JSON, raw times included.")
def bench_transcribe(
    bundle: Path,
    peer: Path,
    beam: int,
    is_parallel: bool,
    fallback: bool,
    seconds: float,
    rounds: int,
    cores: int | None,
    utterances: int,
    wants_json: bool,
) -> None:
    """Race BUNDLE, a model that transcribes, against faster-whisper with the same weights in int8.

    \b
      attendant export faster-whisper-tiny.en -o tiny.en-int8 --precision int8
      attendant bench-transcribe tiny.en-int8 --peer faster-whisper-tiny.en
      attendant bench-transcribe tiny.en-int8 --peer faster-whisper-tiny.en --beam 1 --parallel

    Both transcribe one file, then eight at once of a quarter of its length, in turns, after a turn
    to warm up; the medians of the rounds are reported, and the ratio of their times. The eight
    files are given to faster-whisper with one worker of all cores and with a worker for each
    core: the faster of both counts. Windows, beams, temperatures and cutting at pauses are the
    same on both sides. Word errors are those of the utterances, after Whisper's normaliser of
    English texts, without its list of British spellings.

    The recordings are those of Debian's packages asterisk-core-sounds-en-g722 and
    pocketsphinx-testdata.
    """
    cores = cores or available_cpus()
    temperatures = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0) if fallback else (0.0,)
    settings = Settings(beam, is_parallel, temperatures)
    try:
        chosen = find_utterances(utterances or 200)
        peers = {workers: FasterWhisper(peer, settings, cores, workers) for workers in {1, cores}}
    except NoUtterances as error:
        raise click.ClickException(str(error)) from None
    except ModuleNotFoundError as error:
        message = f"{error.name} is not installed: {PEER_PACKAGES}"
        raise click.ClickException(message) from None
    recordings = asyncio.run(decode_utterances(chosen))
    model = load(bundle, cores, beam)
    ours = Attendant(model, settings)
    try:
        one = [join_recordings(recordings, seconds)]
        many = [
            join_recordings(recordings[number::NUM_FILES], seconds / 4)
            for number in range(NUM_FILES)
        ]
        results = [
            race("one file", one, ours, {1: peers[1]}, rounds),
            race("eight files at once", many, ours, peers, rounds),
        ]
        if utterances:
            results.append(compare_words(recordings, [u.text for u in chosen], ours, peers[cores]))
    finally:
        ours.close()
    if wants_json:
        click.echo(json.dumps({"bundle": str(bundle), "beam": beam, "results": results}))
    else:
        click.echo("\n".join(map(describe, results)))


def load(bundle: Path, cores: int, beam: int) -> "LoadedModel":
    from serving.engine.config import EngineConfig
    from serving.pipelines.loading import load_model

    # What was encoded in the round before must not be taken from a cache.
    config = EngineConfig(slots=NUM_FILES * beam, threads=cores, encoder_cache_bytes=0)
    return load_model(bundle, config)


class Attendant:
    """This project's side."""

    def __init__(self, model: "LoadedModel", settings: Settings) -> None:
        self._model, self._settings = model, settings
        self._loop = asyncio.new_event_loop()

    def __call__(self, files: Sequence["Samples"]) -> list[str]:
        """Return the texts of files, eight of which are transcribed at once."""
        return self._loop.run_until_complete(self._transcribe(files))

    async def _transcribe(self, files: Sequence["Samples"]) -> list[str]:
        from serving.pipelines.decoding import Decoding
        from serving.pipelines.transcription.job import TranscriptionJob
        from serving.requests.parameters import BeamParams

        beam = BeamParams(self._settings.beam) if self._settings.beam > 1 else None
        room = asyncio.Semaphore(NUM_FILES)

        async def transcribe(number: int, samples: "Samples") -> str:
            job = TranscriptionJob(
                f"file-{number}",
                samples,
                language="en",
                temperatures=self._settings.temperatures,
                decoding=Decoding(beam=beam),
                is_parallel=self._settings.is_parallel,
            )
            async with room:
                return str((await self._model.pipeline.run(job)).text)

        tasks = [transcribe(number, samples) for number, samples in enumerate(files)]
        return list(await asyncio.gather(*tasks))

    def close(self) -> None:
        self._model.engine.close()
        self._loop.close()


class FasterWhisper:
    """The other side."""

    def __init__(self, folder: Path, settings: Settings, cores: int, num_workers: int) -> None:
        """num_workers: of CTranslate2; they share the cores."""
        from faster_whisper import BatchedInferencePipeline, WhisperModel

        model: Any = WhisperModel(
            str(folder),
            device="cpu",
            compute_type="int8",
            cpu_threads=max(cores // num_workers, 1),
            num_workers=num_workers,
        )
        self._settings = settings
        self._model = BatchedInferencePipeline(model) if settings.is_parallel else model

    def __call__(self, files: Sequence["Samples"]) -> list[str]:
        """Return the texts of files, eight of which are transcribed at once."""
        with ThreadPoolExecutor(NUM_FILES) as threads:
            return list(threads.map(self._transcribe, files))

    def _transcribe(self, samples: "Samples") -> str:
        segments, _ = self._model.transcribe(
            samples.astype("float32") / 32768,
            language="en",
            beam_size=self._settings.beam,
            temperature=list(self._settings.temperatures),
            without_timestamps=False,
            vad_filter=self._settings.is_parallel,
        )
        return "".join(segment.text for segment in segments)


def race(
    name: str,
    files: Sequence["Samples"],
    ours: Transcribe,
    peers: dict[int, FasterWhisper],
    rounds: int,
) -> dict[str, Any]:
    """Take all sides in turns; return their times in seconds, and the best ratio of a peer."""
    sides: dict[str, Transcribe] = {"ours": ours}
    sides |= {f"faster-whisper, {n} worker{'s' * (n > 1)}": peer for n, peer in peers.items()}
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(1 + rounds):
        for side, transcribe in sides.items():
            started = time.perf_counter()
            transcribe(files)
            if number > 0:
                seconds[side].append(time.perf_counter() - started)
    medians = {side: statistics.median(values) for side, values in seconds.items()}
    fastest = min(median for side, median in medians.items() if side != "ours")
    audio_seconds = sum(map(len, files)) / 16_000
    return {
        "name": name,
        "audio_seconds": audio_seconds,
        "seconds": seconds,
        "medians": medians,
        "ratio": fastest / medians["ours"],
    }


def compare_words(
    recordings: Sequence["Samples"], texts: Sequence[str], ours: Transcribe, peer: Transcribe
) -> dict[str, Any]:
    """Return the word error rates of both over utterances, each a file of its own, in percent."""
    import jiwer
    from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

    normalise = EnglishTextNormalizer({})
    expected = [normalise(text) for text in texts]
    rates = {
        side: 100 * jiwer.wer(expected, [normalise(text) for text in transcribe(recordings)])
        for side, transcribe in {"ours": ours, "faster-whisper": peer}.items()
    }
    return {"name": f"words of {len(texts)} utterances", "word_error_rates": rates}


def describe(result: dict[str, Any]) -> str:
    if "word_error_rates" in result:
        rates = (f"{side} {rate:.2f} %" for side, rate in result["word_error_rates"].items())
        return f"{result['name']}: word error rate {', '.join(rates)}"
    medians = (f"{side} {seconds:.2f} s" for side, seconds in result["medians"].items())
    audio = f"{result['name']}, {result['audio_seconds']:.0f} s of sound"
    return f"{audio}: {', '.join(medians)}; {result['ratio']:.2f} times as fast"
