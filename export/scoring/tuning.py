"""`attendant tune`: a translator learns a team's own domain, from a translation memory."""

import random
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from models.command_errors import reported_errors
from models.errors import InputError

if TYPE_CHECKING:
    from models.checkpoint import Checkpoint
    from models.data.corpus import SentencePair
    from models.scores import TestResult
    from models.training.tuning import TuningConfig, TuningData, TuningTexts
    from serving.bundle.manifest import Tokens

_FEWEST_PAIRS = 100
_HELD_OUT_SHARE = 0.1
_MOST_TESTED, _MOST_DEV = 500, 300


@click.command()
@click.argument("model", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Texts of the domain: a TMX file, or lines of source and translation with a tab between;"
    " gzipped if named .gz.",
)
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="Folder of the bundle."
)
@click.option(
    "--general",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="General texts, in the same formats: mixed in so that the model does not forget them, and"
    " scored too.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="Time limit of the training.",
)
@click.option(
    "--scope",
    type=click.Choice(["layers", "decoder"]),
    default="layers",
    show_default=True,
    help="What is trained: all layers, or those of the decoder alone, which is quicker. The tables"
    " of words stay as they are.",
)
@click.option(
    "--learning-rate",
    type=click.FloatRange(min=0, min_open=True),
    default=1e-4,
    show_default=True,
    help="At its highest; it falls to zero.",
)
@click.option(
    "--precision",
    type=click.Choice(["fp32", "int8", "bf16", "fp16"]),
    default="int8",
    show_default=True,
    help="Of the bundle.",
)
@click.option("--name", help="Name of the tuned model.  [default: that of MODEL and -tuned]")
@click.option("--source-language", help="Source language, where MODEL has several: en ...")
@click.option("--target-language", help="Target language.")
def tune(
    model: Path,
    data: Path,
    output: Path,
    general: Path | None,
    minutes: float,
    scope: Literal["layers", "decoder"],
    learning_rate: float,
    precision: str,
    name: str | None,
    source_language: str | None,
    target_language: str | None,
) -> None:
    """Fine-tune MODEL, a translator, on texts of your own, and write a bundle that serves at once.

    MODEL is what `attendant export` takes for a translator: a checkpoint of `attendant train`, a
    folder of Hugging Face (OPUS-MT, M2M-100, NLLB ...), of Marian, and so on.

    A tenth of the pairs, 500 at most, is held out: their BLEU and chrF before and after are
    printed, and stand in the model card. So are those of held-out general texts.

    The same command goes on where an interrupted one was: until the bundle is written, the state
    is beside it, in a hidden folder: .own.tuning for -o own.

    \b
    Examples:
      attendant tune ~/models/opus-mt-en-fr --data team.tmx --general europarl.tsv.gz -o own
      attendant models load own          # serve it beside the old one
    """
    with reported_errors("tuning", "cpu,train"):
        from models.training.tuning import TuningConfig

        settings = TuningConfig(minutes=minutes, learning_rate=learning_rate, scope=scope)
        languages = (source_language, target_language)
        tuning = Tuning.read(model, data, general, languages)
        report = tuning.run(settings, output, precision, name)
    click.echo(report)
    click.echo(f"wrote {output}; serve it beside others: attendant models load {output}", err=True)


@dataclass(frozen=True)
class Tuning:
    """A translator and the texts that it is tuned on and tested with, of one pair of languages.

    languages: its own codes. test: held-out pairs, whose origins say of what.
    """

    checkpoint: "Checkpoint"
    languages: tuple[str, str]
    data: "TuningData"
    test: list["SentencePair"]

    @classmethod
    def read(
        cls,
        model: Path,
        data: Path,
        general: Path | None,
        languages: tuple[str | None, str | None],
    ) -> "Tuning":
        """Read the model and the texts. Raises InputError, CheckpointError and RequestError."""
        from export.readers.reading import read_model
        from models.training.tuning import TuningData

        checkpoint = read_model(model)
        pair_of_codes = _languages(checkpoint, languages)
        domain = Split.from_pairs(_read(data, pair_of_codes), data)
        others = (
            Split.from_pairs(_read(general, pair_of_codes), general)
            if general
            else Split([], [], [])
        )
        encode = Encoding(checkpoint, pair_of_codes)
        encoded = TuningData(
            domain=encode.texts(domain.train),
            domain_dev=encode.texts(domain.dev),
            general=encode.texts(others.train),
            general_dev=encode.texts(others.dev),
            added=encode.added,
        )
        test = [replace(pair, origin="domain, held out") for pair in domain.test]
        test += [replace(pair, origin="general, held out") for pair in others.test]
        return cls(checkpoint, pair_of_codes, encoded, test)

    def run(self, settings: "TuningConfig", output: Path, precision: str, name: str | None) -> str:
        """Train, write the bundle, and return the scores before and after as Markdown."""
        state = output.with_name(f".{output.name}.tuning")  # FOLDER/* stays a list of bundles
        weights = self._train(settings, state)
        name = name or f"{self.checkpoint.name}-tuned"
        other_files = {
            key: text for key, text in self.checkpoint.files.items() if key != "quality.json"
        }
        tuned = replace(
            self.checkpoint, weights=weights, files=other_files, quantised={}, bits=None
        )
        with tempfile.TemporaryDirectory(prefix=".", dir=output.parent) as folder:
            before = self._score(self.checkpoint, Path(folder) / "before", precision)
            after = self._score(tuned, Path(folder) / "after", precision)
        report = _report(before, after)
        card = f"{_card(self.checkpoint, name)}\n\n## Tuned\n\n{_how(settings, self)}\n\n{report}\n"
        tuned = replace(tuned, files=other_files | {"README.md": card.encode()})
        _export(tuned, output, precision, name)
        shutil.rmtree(state, ignore_errors=True)
        return report

    def _train(self, settings: "TuningConfig", folder: Path) -> Mapping[str, Any]:
        from models.training.state import TrainingStopped
        from models.training.tuning import Tuner

        tuner = Tuner(self.checkpoint, self.data, settings, folder)
        num_pairs = len(self.data.domain), len(self.data.general)
        click.echo("{:,} pairs of the domain, {:,} general ones".format(*num_pairs), err=True)
        try:
            with tuner.brake.on_signals():
                return tuner.run()
        except TrainingStopped as stop:
            click.echo(f"stopped; the same command goes on: {folder}", err=True)
            sys.exit(128 + stop.signal_number)

    def _score(self, checkpoint: "Checkpoint", folder: Path, precision: str) -> "TestResult":
        from export.scoring.scorers import translator
        from models.scores import evaluate

        _export(checkpoint, folder, precision, "scored")
        translate = translator(folder, languages=self.languages)
        return evaluate(self.test, translate)


@dataclass(frozen=True)
class Split:
    """Pairs to train on, to choose the best state by, and to test with; no source is in two."""

    train: list["SentencePair"]
    dev: list["SentencePair"]
    test: list["SentencePair"]

    @classmethod
    def from_pairs(cls, pairs: Iterable["SentencePair"], path: Path) -> "Split":
        """Split pairs by the hashes of their sources, so that every run holds out the same.

        Raises InputError for too few pairs.
        """
        distinct = {pair.source: pair for pair in pairs if pair.source and pair.target}
        if len(distinct) < _FEWEST_PAIRS:
            message = (
                f"{len(distinct)} pairs of these languages; at least {_FEWEST_PAIRS} are needed"
            )
            raise InputError(f"{path} has {message}")
        ordered = sorted(distinct.values(), key=_hash)
        num_test = min(int(_HELD_OUT_SHARE * len(ordered)), _MOST_TESTED)
        num_dev = min(int(_HELD_OUT_SHARE * len(ordered)), _MOST_DEV)
        train = ordered[num_test + num_dev :]
        random.Random(0).shuffle(train)
        return cls(train, ordered[num_test : num_test + num_dev], ordered[:num_test])


def _hash(pair: "SentencePair") -> bytes:
    return blake2b(pair.source.encode(), digest_size=8).digest()


class Encoding:
    """Encodes texts as a model's service does. languages: its own codes."""

    def __init__(self, checkpoint: "Checkpoint", languages: tuple[str, str]) -> None:
        from export.bundling.bitext import read_tokenizers
        from export.bundling.writer import list_special_tokens

        self._config: Any = checkpoint.config
        self._source, self._target = read_tokenizers(checkpoint)
        tokens = list_special_tokens(checkpoint.config, checkpoint.conventions)
        self.added: Tokens = tokens.with_languages(*languages)

    def texts(self, pairs: Sequence["SentencePair"]) -> "TuningTexts":
        from models.training.tuning import TuningTexts

        sources = self._source.encode_batch([pair.source for pair in pairs])
        targets = self._target.encode_batch([pair.target for pair in pairs])
        return TuningTexts([*map(list, sources)], [*map(list, targets)]).select_fitting(
            self._config, self.added
        )


def _languages(checkpoint: "Checkpoint", codes: tuple[str | None, str | None]) -> tuple[str, str]:
    """Return the model's own codes of a pair of languages. Raises InputError."""
    from serving.text.languages import match_codes

    config: Any = checkpoint.config
    if config.task != "translate":
        raise InputError(f"{checkpoint.folder} does not translate: it cannot be tuned so")
    languages = []
    for side, code in zip(("source", "target"), codes, strict=True):
        model_codes = tuple(getattr(config, f"{side}_languages"))
        matches = (
            model_codes
            if code is None
            else match_codes(code, model_codes) or (code,) * (model_codes == ("und",))
        )
        if len(matches) != 1:
            choice = ", ".join(model_codes[:20])
            raise InputError(f"give --{side}-language, one of: {choice}")
        languages.append(matches[0])
    return languages[0], languages[1]


def _read(path: Path, languages: tuple[str, str]) -> list["SentencePair"]:
    """Read the pairs of a TMX file, or of lines."""
    from models.data.corpus import SentencePair, read_pairs
    from serving.translation_memory.tmx import TmxFile

    if path.suffix.lower() != ".tmx":
        return read_pairs(path)
    source, target = languages
    pairs, file = [], TmxFile(path, str(path))
    for unit in file.units():
        codes = _meant(target, tuple(unit.targets))
        if codes and _meant(source, (file.source_language or "",)):
            pairs.append(SentencePair(path.stem, unit.source.text, unit.targets[codes[0]].text))
    return pairs


def _meant(code: str, model_codes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the codes of a file that a model's may mean; any, if the model says none."""
    from serving.text.languages import match_codes

    return model_codes if code == "und" else match_codes(code, model_codes)


def _export(checkpoint: "Checkpoint", folder: Path, precision: str, name: str) -> None:
    from export.bundling.writer import export_checkpoint
    from serving.bundle.manifest import Precision

    export_checkpoint(checkpoint, folder, Precision(precision), name)


def _report(before: "TestResult", after: "TestResult") -> str:
    """Return a table of scores before and after."""
    rows = ["| texts | pairs | BLEU before | after | chrF before | after |"]
    rows.append("|---|---:|---:|---:|---:|---:|")
    for old in before.scores:
        [new] = [score for score in after.scores if score.origin == old.origin]
        figures = f"{old.bleu:.1f} | {new.bleu:.1f} | {old.chrf:.1f} | {new.chrf:.1f}"
        rows.append(f"| {old.origin} | {old.sentences} | {figures} |")
    return "\n".join([*rows, "", before.signatures])


def _card(checkpoint: "Checkpoint", name: str) -> str:
    card = checkpoint.files.get("README.md")
    return card.decode().rstrip() if card else f"# {name}"


def _how(settings: "TuningConfig", tuning: Tuning) -> str:
    sizes = len(tuning.data.domain), len(tuning.data.general)
    pairs = "{:,} pairs of the domain and {:,} general ones".format(*sizes)
    parts = "all layers" if settings.scope == "layers" else "the decoder's layers"
    return (
        f"`attendant tune` trained {parts} on {pairs}, for {settings.minutes:g} minutes at most,"
        f" at a learning rate of {settings.learning_rate:g}."
    )
