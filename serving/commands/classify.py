"""`attendant classify`: the label of each line, or the score of each pair."""

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
from serving.errors import RequestError

if TYPE_CHECKING:
    from serving.bundle.manifest import EncoderSpec
    from serving.engine.config import EngineConfig
    from serving.pipelines.jobs import EncodeJob, Input, Matrix


@click.command()
@model_option
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
    them, where the model reads pairs: a reranker scores how well the second answers the first.

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

    found = vectors_of(path, config, Task.CLASSIFY, job, file, _text_or_pair)
    async with aclosing(found) as scores:
        async for encoder, scored in scores:
            sys.stdout.write(_written(encoder, scored) + "\n")
            sys.stdout.flush()


def _text_or_pair(line: str) -> "Input":
    from serving.pipelines.jobs import Pair

    match line.split("\t"):
        case [text]:
            return text
        case [first, second]:
            return Pair(first, second)
        case _:
            raise RequestError("inputs", line, "must hold one text, or two with a tab between them")


def _written(encoder: "EncoderSpec", scores: "Matrix") -> str:
    label = encoder.labels[int(scores[0].argmax())]
    by_label = dict(zip(encoder.labels, scores[0].tolist(), strict=True))
    return json.dumps({"label": label, "scores": by_label}, ensure_ascii=False)
