"""`attendant distil`: what a model makes of a corpus, for others or itself to learn from."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from serving.parameters import MAX_BEAMS

if TYPE_CHECKING:
    from models.data.corpus import Pair


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.argument("pairs", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="File of lines of origin, source and translation; where it is there already, it goes on.",
)
@click.option(
    "--beam",
    "num_beams",
    type=click.IntRange(1, MAX_BEAMS),
    default=5,
    show_default=True,
    help="How many translations of each source there are to choose from.",
)
def distil(bundle: Path, pairs: Path, output: Path, num_beams: int) -> None:
    """Translate the sources of PAIRS by beam search and keep of each beam the translation that is
    nearest to the reference, by BLEU of the sentence.

    A model that learns from these writes greedily what took a search before: of its own
    translations, or of those of a larger model (sequence-level interpolation, Kim and Rush 2016,
    3.3). A recipe names the file as `distilled` in [data].

    PAIRS has lines of origin, source and reference separated by tabs, as those of `attendant
    evaluate --test`. What must not change is not protected: the model itself is to learn it.

    \b
    Example:
      attendant distil build/bundles/transformer-en-fr-int8 data/en-fr/train.tsv.gz
        -o data/en-fr/distilled.tsv
    """
    from serving.errors import BundleError

    try:
        asyncio.run(_distil(bundle, pairs, output, num_beams))
    except ModuleNotFoundError as error:
        _fail(f"distilling needs {error.name}: pip install 'attendant[train]'")
    except BundleError as error:
        _fail(f"{error.path} cannot be used:", *(f"  {problem}" for problem in error.problems))
    except (OSError, ValueError) as error:
        _fail(str(error))


async def _distil(bundle: Path, path: Path, output: Path, num_beams: int) -> None:
    from sacrebleu.metrics import BLEU
    from tqdm import tqdm

    from models.data.corpus import read_pairs

    bleu = BLEU(effective_order=True)
    pairs = read_pairs(path)
    done = _lines_done(output, pairs)
    with (
        output.open("a", encoding="utf-8") as file,
        tqdm(total=len(pairs), initial=done, unit=" pairs", disable=None) as bar,
    ):
        async for pair, texts in beams(bundle, pairs[done:], num_beams):
            nearest = max(texts, key=lambda text: bleu.sentence_score(text, [pair.target]).score)
            file.write(f"{_beginning(pair)}{nearest}\n")
            bar.update()


async def beams(
    bundle: Path, pairs: Sequence["Pair"], num_beams: int
) -> AsyncIterator[tuple["Pair", list[str]]]:
    """Yield each pair with the translations of its source, the likeliest first.

    Raises BundleError, and ValueError for a model that does not translate.
    """
    from export.scoring.translators import job_of
    from serving.engine.config import EngineConfig
    from serving.pipelines.loading import FILE_SLOTS, opened
    from serving.pipelines.streams import in_order

    config = EngineConfig(slots=FILE_SLOTS, max_waiting=None)
    job = replace(job_of(bundle, num_beams, num_beams), num_alternatives=num_beams - 1)
    async with opened(bundle, config) as catalog:
        [card] = catalog.own_cards
        model = await catalog.translator(card.name, job.source, job.target)

        async def work(numbered: tuple[int, "Pair"]) -> tuple["Pair", list[str]]:
            number, pair = numbered
            translation = await model.run(
                replace(job, request_id=str(number), texts=(pair.source,))
            )
            [renderings] = translation.renderings
            return pair, [each.text.strip() for each in renderings]

        async for found in in_order(work, enumerate(pairs), FILE_SLOTS * 8):
            yield found


def _lines_done(output: Path, pairs: Sequence["Pair"]) -> int:
    """Count the lines of `output` that are whole and cut off what follows them. Raises ValueError
    where they are not of these pairs.
    """
    if not output.exists():
        return 0
    with output.open("r+b") as file:
        *whole, _ = file.read().split(b"\n")
        known = zip(whole, map(_beginning, pairs), strict=False)
        if len(whole) > len(pairs) or not all(o.startswith(k.encode()) for o, k in known):
            raise ValueError(f"{output} has lines of other pairs; name another file with -o")
        file.truncate(sum(len(line) + 1 for line in whole))
    return len(whole)


def _beginning(pair: "Pair") -> str:
    return f"{pair.origin}\t{pair.source}\t"


def _fail(*lines: str) -> NoReturn:
    for line in lines:
        click.echo(line, err=True)
    sys.exit(2)
