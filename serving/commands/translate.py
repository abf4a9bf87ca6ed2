"""`attendant translate`: lines in, translated lines out."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import click

from serving.commands.common import (
    beam_option,
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

if TYPE_CHECKING:
    from serving.engine.config import EngineConfig
    from serving.pipelines.jobs import Rendering, TranslationJob

# A line's number and its renderings, best first, as they are written out.
Format = Callable[[int, "tuple[Rendering, ...]"], str]


@click.command()
@model_option
@source_option
@target_option
@beam_option
@click.option("--length-penalty", type=float, default=1.0, show_default=True, help="Under --beam.")
@click.option("--n-best", type=click.IntRange(1), help="Write so many translations of each line.")
@click.option("--scores", is_flag=True, help="Write each line's score after a tab.")
@click.option("--prefix", default="", help="What every translation begins with.")
@click.option(
    "--alignments",
    type=click.File("w", encoding="utf-8"),
    help="Write word alignments here, in Pharaoh format.",
)
@device_option
@click.argument("file", type=click.File("rb"), default="-")
def translate(
    model: Path, alignments: TextIO | None, device: str, file: BinaryIO, **options: Any
) -> None:
    """Translate FILE, or standard input, line by line.

    Lines keep their order and their blanks; many are translated at once. Without --beam decoding is
    greedy. A score is the mean log-probability of a token.

    \b
    Examples:
      attendant translate --model build/bundles/transformer-en-fr-int8 < in.txt > out.txt
      echo 'A dog runs in the snow.' | attendant translate --model build/bundles/bahdanau-en-fr-int8
      attendant translate --model build/bundles/transformer-en-fr-int8 --beam 4 --scores in.txt

    \b
    The four best of each line as Moses writes them, 'number ||| translation ||| score':
      attendant translate --model build/bundles/transformer-en-fr-int8 --beam 8 --n-best 4 in.txt

    \b
    Which word comes of which, '0-0 1-2' for each line:
      attendant translate --model build/bundles/transformer-en-fr-int8 --alignments out.align in.txt
    """
    end_quietly_with_the_reader()
    job = _job(options, wants_alignments=alignments is not None)
    format_line = _format(options)
    asyncio.run(_translate(model, engine_config(device), job, file, format_line, alignments))


def _job(options: dict[str, Any], wants_alignments: bool) -> "TranslationJob":
    """The job of every line, but for the line."""
    from serving.parameters import BeamParams
    from serving.pipelines.decoding import Decoding
    from serving.pipelines.jobs import TranslationJob
    from serving.text.checks import check_text

    check_text("--prefix", options["prefix"], max_characters=sys.maxsize)
    width, n_best = options["beam"], options["n_best"] or 1
    if n_best > (width or 1):
        raise click.UsageError(f"--n-best {n_best} needs --beam {n_best} or more")
    if width is None and options["length_penalty"] != 1:
        raise click.UsageError("--length-penalty needs --beam")
    num_hypotheses = 1 if n_best == 1 else width  # some may be the same text in other tokens
    beam = None if width is None else BeamParams(width, num_hypotheses, options["length_penalty"])
    return TranslationJob(
        "",
        (),
        options["source"] or "",
        options["target"] or "",
        Decoding(beam=beam),
        num_alternatives=n_best - 1,
        target_prefix=options["prefix"],
        wants_alignments=wants_alignments,
    )


def _format(options: dict[str, Any]) -> Format:
    if options["n_best"]:
        return lambda number, ranked: "".join(
            f"{number} ||| {each.text.strip()} ||| {each.score:.4f}\n" for each in ranked
        )
    if options["scores"]:
        return lambda number, ranked: f"{ranked[0].text.rstrip()}\t{ranked[0].score:.4f}\n"
    return lambda number, ranked: ranked[0].text


async def _translate(
    path: Path,
    config: "EngineConfig",
    job: "TranslationJob",
    file: BinaryIO,
    format_line: Format,
    alignments: TextIO | None,
) -> None:
    from dataclasses import replace

    from serving.pipelines.offline import in_order, opened

    async with opened(path, config) as catalog:
        [card] = catalog.own_cards
        translator = await catalog.translator(card.name, job.source, job.target)
        source, target = languages_of(card, job.source, job.target)
        of_card = replace(job, source=source, target=target)

        async def work(numbered: tuple[int, str]) -> "tuple[int, tuple[Rendering, ...]]":
            number, line = numbered
            translation = await translator.translate(
                replace(of_card, request_id=str(number), texts=(line,))
            )
            return number, translation.renderings[0]

        with progress_bar(file) as bar:
            async for number, ranked in in_order(work, enumerate(lines_of(file)), config.slots * 8):
                sys.stdout.write(format_line(number, ranked))
                sys.stdout.flush()
                if alignments is not None:
                    best = ranked[0].alignment
                    alignments.write((best.pharaoh if best else "") + "\n")
                bar.update()
