"""`attendant embed`: the vector of each line."""

import asyncio
import json
import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from serving.commands.common import (
    device_option,
    end_quietly_with_the_reader,
    engine_config,
    model_option,
)
from serving.commands.encoding import vectors_of

if TYPE_CHECKING:
    from serving.engine.config import EngineConfig
    from serving.pipelines.jobs import EncodeJob, Matrix

_SUFFIXES = (".npy", ".safetensors")


@click.command()
@model_option
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

    kept: list[Matrix] = []
    async with aclosing(vectors_of(path, config, Task.EMBED, job, file, str)) as found:
        async for _, vector in found:
            if output is not None:
                kept.append(vector)
                continue
            sys.stdout.write(json.dumps(vector[0].tolist()) + "\n")
            sys.stdout.flush()
    if output is not None:
        _save(output, kept)


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
