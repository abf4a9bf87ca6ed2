"""`attendant embed` and `attendant classify`: the vector, or the labels, of each line."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from serving.commands.options import (
    device_option,
    end_quietly_with_the_reader,
    engine_config,
    lines_of,
    model_option,
    progress_bar,
)
from serving.errors import RequestError

if TYPE_CHECKING:
    from serving.bundle.manifest import EncoderSpec, Task
    from serving.engine.config import EngineConfig
    from serving.pipelines.jobs import EncodeInput, EncodeJob, Encodings, Matrix

_SUFFIXES = (".npy", ".safetensors")


@click.command()
@model_option("embed")
@click.option("--prompt-name", help="Which of the model's prompts comes before each line.")
@click.option("--dimensions", type=click.IntRange(1), help="Keep so many numbers of each vector.")
@click.option(
    "--max-tokens",
    type=click.IntRange(0),
    help="Cut longer lines to so many tokens, 0 to what the model reads.  [default: an error]",
)
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write one array of all vectors here: .npy, or .safetensors (as `embeddings`).",
)
@device_option
@click.argument("file", type=click.File("rb"), default="-")
def embed(
    model: Path,
    prompt_name: str | None,
    dimensions: int | None,
    max_tokens: int | None,
    output: Path | None,
    device: str,
    file: BinaryIO,
) -> None:
    """Embed the lines of FILE or standard input: each becomes one line, a JSON list of numbers.

    Lines keep their order, and empty ones have vectors too. Many are encoded at once, and each
    vector is the same to the bit whatever the others are.

    \b
    Examples:
      attendant embed --model build/bundles/all-minilm < lines.txt > vectors.jsonl
      attendant embed --model build/bundles/all-minilm lines.txt -o vectors.npy
      echo 'What do dogs eat?' | attendant embed --model build/bundles/e5 --prompt-name query

    \b
    Which lines are alike, in Python:
      import numpy
      vectors = numpy.load("vectors.npy")  # [lines, dimensions]
      likeness = vectors @ vectors.T  # where the model's vectors have length 1
    """
    from serving.pipelines.jobs import EncodeJob
    from serving.pipelines.loading import FILE_SLOTS

    if output is not None and output.suffix not in _SUFFIXES:
        raise click.UsageError(f"-o {output}: must end with {' or '.join(_SUFFIXES)}")
    if output is not None and not output.parent.is_dir():  # known before any work
        raise click.UsageError(f"-o {output}: there is no folder {output.parent}; make it first")
    end_quietly_with_the_reader()
    job = EncodeJob("", (), max_tokens=max_tokens, prompt_name=prompt_name, dimensions=dimensions)
    asyncio.run(_embed(model, engine_config(device, slots=FILE_SLOTS), job, file, output))


async def _embed(
    path: Path, config: "EngineConfig", job: "EncodeJob", file: BinaryIO, output: Path | None
) -> None:
    from serving.bundle.manifest import Task

    vectors: list[Matrix] = []
    async with aclosing(encoded_lines(path, config, (Task.EMBED,), job, file, str)) as lines:
        async for _, encodings in lines:
            vector = encodings.values
            if output is not None:
                vectors.append(vector)
                continue
            sys.stdout.write(json.dumps(vector[0].tolist()) + "\n")
            sys.stdout.flush()
    if output is not None:
        _save(output, vectors)


def _save(path: Path, vectors: "list[Matrix]") -> None:
    import numpy as np
    from safetensors.numpy import save

    if not vectors:
        raise click.UsageError("there are no lines, so there is no array to write")
    array = np.concatenate(vectors)
    if path.suffix == ".npy":
        np.save(path, array)
    else:
        path.write_bytes(save({"embeddings": array}))


@click.command()
@model_option("classify")
@click.option(
    "--max-tokens",
    type=click.IntRange(0),
    help="Cut longer lines to so many tokens, 0 to what the model reads.  [default: an error]",
)
@device_option
@click.argument("file", type=click.File("rb"), default="-")
def classify(model: Path, max_tokens: int | None, device: str, file: BinaryIO) -> None:
    """Classify the lines of FILE or standard input: each becomes a line of JSON.

    It holds the likeliest label and the score of each. A line may hold two texts with a tab between
    them, where the model reads pairs: a reranker scores how well the second answers the first. Of a
    model that labels tokens it holds the entities, with the characters of the line they stand at.

    \b
    Examples:
      attendant classify --model build/bundles/sentiment < reviews.txt > labels.jsonl
      printf 'What do dogs eat?\\tDogs eat meat.\\n' |
        attendant classify --model build/bundles/reranker
    """
    from serving.pipelines.jobs import EncodeJob
    from serving.pipelines.loading import FILE_SLOTS

    end_quietly_with_the_reader()
    config = engine_config(device, slots=FILE_SLOTS)
    asyncio.run(_classify(model, config, EncodeJob("", (), max_tokens=max_tokens), file))


async def _classify(path: Path, config: "EngineConfig", job: "EncodeJob", file: BinaryIO) -> None:
    from serving.bundle.manifest import Task

    tasks = (Task.CLASSIFY, Task.CLASSIFY_TOKENS)
    results = encoded_lines(path, config, tasks, job, file, _text_or_pair)
    async with aclosing(results) as lines:
        async for encoder, encodings in lines:
            written = _labels(encoder, encodings)
            sys.stdout.write(json.dumps(written, ensure_ascii=False) + "\n")
            sys.stdout.flush()


def _text_or_pair(line: str) -> "EncodeInput":
    from serving.pipelines.jobs import TextPair

    match line.split("\t"):
        case [text]:
            return text
        case [first, second]:
            return TextPair(first, second)
        case _:
            raise RequestError("inputs", line, "must hold one text, or two with a tab between them")


def _labels(encoder: "EncoderSpec", encodings: "Encodings") -> dict[str, Any]:
    if encodings.entities:
        return {"entities": [asdict(entity) for entity in encodings.entities[0]]}
    [scores] = encodings.values
    label = encoder.labels[int(scores.argmax())]
    return {"label": label, "scores": dict(zip(encoder.labels, scores.tolist(), strict=True))}


WINDOWS = 16  # full batches of lines that are read ahead: among them the longest go first
Parse = Callable[[str], "EncodeInput"]  # raises RequestError of the field "inputs"


async def encoded_lines(
    path: Path,
    config: "EngineConfig",
    tasks: tuple["Task", ...],
    job: "EncodeJob",
    file: BinaryIO,
    parse: Parse,
) -> AsyncGenerator["tuple[EncoderSpec, Encodings]", None]:
    """Yield what the bundle is, and the encodings of each line, in order.

    job: that of every line, but for the line. parse: makes the input of a line without its end.
    """
    from serving.pipelines.loading import open_model
    from serving.pipelines.streams import in_order

    async with open_model(path, config) as catalog:
        [card] = catalog.local_cards
        encoder = await catalog.get_model(card.name, *tasks)
        assert card.encoder is not None

        async def work(numbered: tuple[int, str]) -> "Encodings":
            number, line = numbered
            try:
                return await encoder.run(_job_of_line(job, number, line, parse, file.seekable()))
            except RequestError as error:
                if error.field != "inputs":
                    raise
                raise error.with_field(f"line {number}") from None

        with progress_bar(file) as bar:
            numbered = enumerate(_lines(file), start=1)
            async for encodings in in_order(work, numbered, WINDOWS * config.slots):
                yield card.encoder, encodings
                bar.update()


def _job_of_line(
    job: "EncodeJob", number: int, line: str, parse: Parse, longest_first: bool
) -> "EncodeJob":
    """longest_first: whoever waits for a pipe's first line waits for no others."""
    from serving.pipelines.decoding import Decoding
    from serving.requests.request import MAX_PRIORITY

    priority = -min(len(line), MAX_PRIORITY) if longest_first else 0
    decoding = Decoding(priority=priority)
    return replace(job, request_id=f"line {number}", inputs=(parse(line),), decoding=decoding)


def _lines(file: BinaryIO) -> Iterator[str]:
    return (line.rstrip("\r\n") for line in lines_of(file))
