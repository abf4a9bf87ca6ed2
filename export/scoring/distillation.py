"""Translations of a corpus by a model, to train other models or itself (sequence-level
distillation).
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

from sacrebleu.metrics import BLEU
from tqdm import tqdm

from export.scoring.scorers import job_of
from models.data.corpus import Pair, read_pairs
from serving.engine.config import EngineConfig
from serving.pipelines.loading import FILE_SLOTS, opened
from serving.pipelines.streams import in_order


async def distil_corpus(bundle: Path, path: Path, output: Path, num_beams: int) -> None:
    """Append to `output`, for each pair, the translation that is nearest to the reference."""
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
    bundle: Path, pairs: Sequence[Pair], num_beams: int
) -> AsyncIterator[tuple[Pair, list[str]]]:
    """Yield each pair with the translations of its source, the likeliest first.

    Raises BundleError, and ValueError for a model that does not translate.
    """
    config = EngineConfig(slots=FILE_SLOTS, max_waiting=None)
    job = replace(job_of(bundle, num_beams, num_beams), num_alternatives=num_beams - 1)
    async with opened(bundle, config) as catalog:
        [card] = catalog.own_cards
        model = await catalog.translator(card.name, job.source, job.target)

        async def work(numbered: tuple[int, Pair]) -> tuple[Pair, list[str]]:
            number, pair = numbered
            translation = await model.run(
                replace(job, request_id=str(number), texts=(pair.source,))
            )
            [renderings] = translation.renderings
            return pair, [each.text.strip() for each in renderings]

        async for found in in_order(work, enumerate(pairs), FILE_SLOTS * 8):
            yield found


def _lines_done(output: Path, pairs: Sequence[Pair]) -> int:
    """Return the number of complete lines of `output`, and cut off what follows them. Raises
    ValueError if they are not of these pairs.
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


def _beginning(pair: Pair) -> str:
    return f"{pair.origin}\t{pair.source}\t"
