"""`attendant score`: how likely a model finds given translations."""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from serving.bundle.manifest import Task
from serving.commands.options import (
    device_option,
    end_quietly_with_the_reader,
    engine_config,
    languages_of,
    lines_of,
    model_option,
    progress_bar,
    source_option,
    target_option,
)
from serving.errors import RequestError

if TYPE_CHECKING:
    from serving.engine.config import EngineConfig
    from serving.pipelines.translation.job import PairScore

Format = Callable[["PairScore"], str]


@click.command()
@model_option("translate")
@source_option
@target_option
@click.option("--json", "as_json", is_flag=True, help="Tell the tokens and their scores too.")
@device_option
@click.argument("file", type=click.File("rb"), default="-")
def score(
    model: Path, source: str | None, target: str | None, as_json: bool, device: str, file: BinaryIO
) -> None:
    """Score translations: lines of FILE or standard input hold a source, a tab and a target.

    For each line the log-probability of the target, its end included, given the source.

    \b
    Examples:
      attendant score --model build/bundles/transformer-en-fr-int8 pairs.tsv > scores.txt
      printf 'A dog runs.\\tUn chien court.\\n' |
        attendant score --model build/bundles/transformer-en-fr-int8 --json
    """
    end_quietly_with_the_reader()
    format_score = _as_json if as_json else _as_sum
    asyncio.run(_score(model, engine_config(device), (source, target), file, format_score))


async def _score(
    path: Path,
    config: "EngineConfig",
    languages: tuple[str | None, str | None],
    file: BinaryIO,
    format_score: Format,
) -> None:
    from serving.pipelines.loading import open_model
    from serving.pipelines.streams import in_order
    from serving.pipelines.translation.job import ScoreJob

    async with open_model(path, config) as catalog:
        [card] = catalog.local_cards
        scorer = await catalog.get_model(card.name, Task.TRANSLATE)
        source, target = languages_of(card, *languages)

        async def work(numbered: tuple[int, tuple[str, str]]) -> "PairScore":
            number, pair = numbered
            [score] = await scorer.run(ScoreJob(str(number), (pair,), source, target))
            return score

        with progress_bar(file) as bar:
            async for score in in_order(work, enumerate(_pairs(file)), config.slots * 8):
                sys.stdout.write(format_score(score) + "\n")
                sys.stdout.flush()
                bar.update()


def _pairs(file: BinaryIO) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines_of(file), start=1):
        source, *targets = line.rstrip("\r\n").split("\t")
        if len(targets) != 1:
            raise RequestError(f"line {number}", line, "must hold a source, a tab and a target")
        yield source, targets[0]


def _as_sum(score: "PairScore") -> str:
    return f"{score.logprob:.4f}"


def _as_json(score: "PairScore") -> str:
    from serving.api.score import describe_score

    return json.dumps(describe_score(score), ensure_ascii=False)
