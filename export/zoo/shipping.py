"""Completes the card that training wrote: its quality section, and how weights are stored."""

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from export.bundling.parity import AnyParity
from export.bundling.writer import export_checkpoint
from export.scoring.confidence import calibration_of
from export.scoring.reports import held_out
from export.scoring.scorers import prose_scorer, translator
from export.zoo.pictures import (
    ALIGNMENT,
    SHIPPED_BY_LENGTH,
    draw_alignment,
    draw_by_length,
    has_alignment,
)
from models.checkpoint import (
    CARD_FILE,
    CURVE_FILE,
    QUALITY_FILE,
    WORDS_FILE,
    Checkpoint,
    load_checkpoint,
    save_checkpoint,
    write_words,
)
from models.data import corpus
from models.data.corpus import SentencePair, read_pairs
from models.errors import InputError
from models.safetensors import Storage
from models.scores import Everyday, read_everyday
from models.scores import table as everyday_table
from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle

# Texts of the folder of sets on which the graphs are compared with torch, by task.
COMPARED_TEXTS = {"translate": "en-fr-200.tsv", "generate": "prose-en.txt"}
COMPARED_PRECISIONS = (Precision.FP32, Precision.FP16, Precision.INT8)
QUALITY = re.compile(r"^## Quality\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
STORED = re.compile(r"stored in (?:fp32|fp16|bf16|int8)")


def complete_card(card: str, scores: str, storage: Storage, command: str) -> str:
    """Return the card with the scores instead of training's, or at its end if it has none."""
    section = f"## Quality\n\n{scores}\n\nBy `{command}`.\n\n"
    text = STORED.sub(f"stored in {storage}", card)
    if QUALITY.search(text):
        return QUALITY.sub(lambda _: section, text, count=1).rstrip() + "\n"
    return f"{text.rstrip()}\n\n{section}".rstrip() + "\n"


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
class ShippedQuality:
    """quality: for quality.json. markdown: for the card, without its heading. pictures: how those
    are drawn that it shows, by the names of their files.
    """

    quality: dict[str, Any]
    markdown: str
    pictures: Mapping[str, Callable[[Path], None]] = field(default_factory=dict)


def score_translations(bundles: Bundles, recipe: Path, data: Path, sets: Path) -> ShippedQuality:
    """Raises TrainingConfigError, OSError and InputError."""
    from models.scores import score

    pairs, everyday = test_pairs(recipe, data, sets), read_everyday(sets / "everyday.tsv")
    texts = [pair.source for pair in [*pairs, *(example.pair for example in everyday)]]
    said = {
        name: translator(folder, protects=True)(texts) for name, folder in bundles.by_name.items()
    }
    alone = score(pairs, translator(bundles.int8)([pair.source for pair in pairs]))
    results = {name: score(pairs, example[: len(pairs)]) for name, example in said.items()}
    int8 = results.pop("int8")
    translations = said["int8"][len(pairs) :]
    quality = int8.as_json() | {
        name: example.as_json()["scores"] for name, example in results.items()
    }
    quality["without protection"] = alone.as_json()["scores"]
    quality |= _calibration(bundles.int8, recipe, data)
    pictures = {
        SHIPPED_BY_LENGTH: lambda path: draw_by_length(pairs, said["int8"][: len(pairs)], path)
    }
    parts = [f"The int8 bundle, greedy, {AS_SERVED}:\n\n{int8.as_table(results)}"]
    parts += [f"The model alone (`protect: false`):\n\n{alone.as_table()}\n\n{int8.signatures}"]
    parts += [f"![BLEU by the number of source words]({SHIPPED_BY_LENGTH})"]
    if has_alignment(bundles.int8):
        pictures[ALIGNMENT] = lambda path: draw_alignment(bundles.int8, path)
        parts += [f"![what each word of a translation attends to]({ALIGNMENT})"]
    parts += [_on_everyday(everyday, translations)]
    return ShippedQuality(quality, "\n\n".join(parts), pictures)


def _calibration(bundle: Path, recipe: Path, data: Path) -> dict[str, Any]:
    """Return how probable translations are turned into scores, by the recipe's development set."""
    from models.training.config import read_config

    dev = read_config(recipe).data.dev
    calibration = calibration_of(bundle, read_pairs(data / dev)) if dev else None
    return {"calibration": asdict(calibration)} if calibration else {}


def test_pairs(recipe: Path, data: Path, sets: Path) -> list[SentencePair]:
    """Return the pairs of the recipe's test set, then of the made sets."""
    from models.training.config import read_config

    test = read_config(recipe).data.test
    if not test:
        raise InputError(f"{recipe} names no test set")
    synthetic_sets = sorted((sets / "made").glob("*.tsv"))
    return [pair for path in (data / test, *synthetic_sets) for pair in read_pairs(path)]


def score_prose(bundles: Bundles, recipe: Path, data: Path) -> ShippedQuality:
    documents = held_out(recipe, data)
    scores = {name: prose_scorer(prose)(documents) for name, prose in bundles.by_name.items()}
    int8 = scores["int8"]
    others = {name: asdict(prose) for name, prose in scores.items() if prose is not int8}
    quality = asdict(int8) | others
    return ShippedQuality(
        quality, f"{corpus.table(scores)}\n\nThe held-out documents: {int8.as_sentence()}"
    )


def _on_everyday(everyday: Sequence[Everyday], translations: Sequence[str]) -> str:
    return f"""### Everyday sentences

Translated by the int8 bundle, greedy. These sentences were known when the corpus and its phrases \
were chosen, so that they show what translations look like and measure nothing of text that is \
new. The last column says whether all facts are said that are written down for a sentence \
(`tests/data/everyday-facts.txt`); words alone do not make a translation good: read them.

{everyday_table(everyday, translations)}"""


@dataclass(frozen=True)
class Sources:
    """The files that scores are computed from.

    sets: the folder of synthetic sets and everyday sentences.
    """

    recipe: Path
    data: Path
    sets: Path


SCORERS: dict[str, Callable[[Bundles, Sources], ShippedQuality]] = {
    "translate": lambda bundles, s: score_translations(bundles, s.recipe, s.data, s.sets),
    "generate": lambda bundles, s: score_prose(bundles, s.recipe, s.data),
}


def ship_checkpoint(source: Path, output: Path, storage: Storage, sources: Sources) -> str:
    """Write the folder `output` and return the scores in Markdown.

    Raises CheckpointError, TrainingConfigError, AttendantError, OSError and InputError.
    """
    if source.resolve() == output.resolve():
        raise InputError(f"{output} is what is to be shipped: name another folder")
    trained = load_checkpoint(source)
    if trained.config.task not in SCORERS:
        raise InputError(f"{source} only encodes: shipped are models that translate or write")
    save_checkpoint(output, trained.config, trained.weights, trained.tokenizer, storage)
    if WORDS_FILE in trained.files:
        write_words(output, trained.files[WORDS_FILE])
    parity = _parity(output, sources.sets / COMPARED_TEXTS[trained.config.task])
    with _export_bundles(source, output) as bundles:
        shipped = SCORERS[trained.config.task](bundles, sources)
        for name, draw in shipped.pictures.items():
            draw(output / name)
    if (source / CURVE_FILE).is_file():
        shutil.copyfile(source / CURVE_FILE, output / CURVE_FILE)
    card = trained.files.get(CARD_FILE, b"").decode() or f"# {output.name}\n"
    command = (
        f"attendant lab ship CHECKPOINT -o {output} --weights {storage} --recipe {sources.recipe}"
    )
    text = complete_card(card, shipped.markdown, storage, command)
    (output / CARD_FILE).write_text(text, encoding="utf-8")
    quality = json.dumps(shipped.quality | {"parity": parity}, indent=2, ensure_ascii=False)
    (output / QUALITY_FILE).write_text(f"{quality}\n", encoding="utf-8")
    return shipped.markdown


def _parity(stored: Path, test: Path) -> dict[str, Any]:
    """Compare what is stored with torch in each precision; return the record for quality.json.

    test: a text to compare on beside random ids, if it is there.
    """
    from export.bundling.verify import TranslationVerifier

    def compare(checkpoint: Checkpoint, bundle: Bundle) -> AnyParity:
        return TranslationVerifier(checkpoint, bundle).compare(
            test if test.is_file() else None, 500
        )

    command = f"attendant export {stored} -o BUNDLE --precision PRECISION"
    record: dict[str, Any] = {"command": f"{command} --test {test}" if test.is_file() else command}
    with tempfile.TemporaryDirectory() as folder:
        for precision in COMPARED_PRECISIONS:
            place = Path(folder) / precision
            parity = export_checkpoint(load_checkpoint(stored), place, precision, verify=compare)
            assert parity is not None
            record[precision] = parity.as_json()
    return record


@contextmanager
def _export_bundles(source: Path, stored: Path) -> Iterator[Bundles]:
    """Bundles for as long as they are scored: of what is stored, and of what was trained."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        kinds = {
            "int8": (stored, Precision.INT8),
            "fp32": (stored, Precision.FP32),
            "trained": (source, Precision.FP32),
        }
        for name, (checkpoint, precision) in kinds.items():
            export_checkpoint(load_checkpoint(checkpoint), folder / name, precision)
        yield Bundles(*(folder / name for name in kinds))
