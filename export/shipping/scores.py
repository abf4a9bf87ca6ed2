"""Tells of a shipped model's quality: translations of test sets, made sets and everyday
sentences, or bits per byte of prose; by the int8 bundle, beside fp32 and what was trained.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from export.scoring.asking import held_out
from export.scoring.prose import prose_scorer
from export.scoring.translators import translator
from export.shipping.pictures import (
    ALIGNMENT,
    BY_LENGTH,
    draw_alignment,
    draw_by_length,
    has_alignment,
)
from models.data import prose
from models.data.corpus import Pair, read_pairs
from models.evaluation.everyday import Everyday, read_everyday
from models.evaluation.everyday import table as everyday_table

AS_SERVED = (
    "as services translate by default: addresses, numbers and unknown names kept, capitals lowered"
)


@dataclass(frozen=True)
class Bundles:
    """Folders: of the stored weights in two precisions, and of those that were trained in fp32."""

    int8: Path
    fp32: Path
    trained: Path

    @property
    def by_name(self) -> dict[str, Path]:
        return {"int8": self.int8, "fp32": self.fp32, "as trained": self.trained}


@dataclass(frozen=True)
class Found:
    """quality: for quality.json. markdown: for the card, without its heading. pictures: how those
    are drawn that it shows, by the names of their files.
    """

    quality: dict[str, Any]
    markdown: str
    pictures: Mapping[str, Callable[[Path], None]] = field(default_factory=dict)


def of_translations(bundles: Bundles, recipe: Path, data: Path, sets: Path) -> Found:
    """Raises ConfigError, OSError and ValueError."""
    from models.evaluation.scores import score

    pairs, everyday = test_pairs(recipe, data, sets), read_everyday(sets / "everyday.tsv")
    texts = [pair.source for pair in [*pairs, *(each.pair for each in everyday)]]
    said = {
        name: translator(folder, protects=True)(texts) for name, folder in bundles.by_name.items()
    }
    alone = score(pairs, translator(bundles.int8)([pair.source for pair in pairs]))
    results = {name: score(pairs, each[: len(pairs)]) for name, each in said.items()}
    int8 = results.pop("int8")
    translations = said["int8"][len(pairs) :]
    quality = int8.as_json() | {name: each.as_json()["scores"] for name, each in results.items()}
    quality["without protection"] = alone.as_json()["scores"]
    pictures = {BY_LENGTH: lambda path: draw_by_length(pairs, said["int8"][: len(pairs)], path)}
    parts = [f"The int8 bundle, greedy, {AS_SERVED}:\n\n{int8.as_table(results)}"]
    parts += [f"The model alone (`protect: false`):\n\n{alone.as_table()}\n\n{int8.signatures}"]
    parts += [f"![BLEU by the number of source words]({BY_LENGTH})"]
    if has_alignment(bundles.int8):
        pictures[ALIGNMENT] = lambda path: draw_alignment(bundles.int8, path)
        parts += [f"![what each word of a translation attends to]({ALIGNMENT})"]
    parts += [_on_everyday(everyday, translations)]
    return Found(quality, "\n\n".join(parts), pictures)


def test_pairs(recipe: Path, data: Path, sets: Path) -> list[Pair]:
    """The recipe's test set, then the made sets."""
    from models.training.config import read_config

    test = read_config(recipe).data.test
    if not test:
        raise ValueError(f"{recipe} names no test set")
    made = sorted((sets / "made").glob("*.tsv"))
    return [pair for path in (data / test, *made) for pair in read_pairs(path)]


def of_prose(bundles: Bundles, recipe: Path, data: Path) -> Found:
    documents = held_out(recipe, data)
    scores = {name: prose_scorer(each)(documents) for name, each in bundles.by_name.items()}
    int8 = scores["int8"]
    others = {name: asdict(each) for name, each in scores.items() if each is not int8}
    quality = asdict(int8) | others
    return Found(quality, f"{prose.table(scores)}\n\nThe held-out documents: {int8.as_sentence()}")


def _on_everyday(everyday: Sequence[Everyday], translations: Sequence[str]) -> str:
    return f"""### Everyday sentences

Translated by the int8 bundle, greedy. These sentences were known when the corpus and its phrases \
were chosen, so that they show what translations look like and measure nothing of text that is \
new. The last column says whether all facts are said that are written down for a sentence \
(`tests/data/everyday-facts.txt`); words alone do not make a translation good: read them.

{everyday_table(everyday, translations)}"""
