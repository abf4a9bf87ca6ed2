"""Scores of translations by origin, everyday sentences, and the accuracy of labels.

sacrebleu is imported late: it is not installed where models are only exported.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from models.conventions import AddedTokens
from models.data.corpus import SentencePair, read_pairs, read_text
from models.errors import InputError

Translate = Callable[[list[str]], list[str]]


@dataclass(frozen=True)
class TranslationScore:
    """sacreBLEU and chrF of one part of a test set.

    kept: the percentage of sentences with numbers, names, addresses or capitals whose translations
        keep them.
    """

    origin: str
    sentences: int
    bleu: float
    chrf: float
    kept: float | None = None


@dataclass(frozen=True)
class TestResult:
    """Scores by origin, the largest origin first, and the signatures of the metrics."""

    scores: list[TranslationScore]
    bleu_signature: str
    chrf_signature: str

    def as_json(self) -> dict:
        return {
            "scores": [vars(score) for score in self.scores],
            "bleu_signature": self.bleu_signature,
            "chrf_signature": self.chrf_signature,
        }

    def as_table(self, others: "Mapping[str, TestResult] | None" = None) -> str:
        """Return a Markdown table.

        others: results on the same test set, by the names of their columns; the table shows their
            BLEU and the difference.
        """
        others = others or {}
        heads = ["source", "sentences", "BLEU", "chrF", "kept"]
        heads += [head for name in others for head in (f"BLEU {name}", "difference")]
        rows = [heads, ["---", *["---:"] * (len(heads) - 1)]]
        for number, s in enumerate(self.scores):
            kept_share = "" if s.kept is None else f"{s.kept:.1f} %"
            cells = [s.origin, str(s.sentences), f"{s.bleu:.1f}", f"{s.chrf:.1f}", kept_share]
            for other in (result.scores[number].bleu for result in others.values()):
                cells += [f"{other:.2f}", f"{s.bleu - other:+.2f}"]
            rows.append(cells)
        return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)

    @property
    def signatures(self) -> str:
        """Return a Markdown sentence."""
        return f"BLEU `{self.bleu_signature}`, chrF `{self.chrf_signature}`."


def score(pairs: list[SentencePair], hypotheses: list[str]) -> TestResult:
    """Score hypotheses against the targets of `pairs`, by origin."""
    from sacrebleu.metrics import BLEU, CHRF

    bleu, chrf = BLEU(), CHRF()
    scores = []
    for origin in sorted({p.origin for p in pairs}):
        mine = [p for p in pairs if p.origin == origin]
        ours = [h for p, h in zip(pairs, hypotheses, strict=True) if p.origin == origin]
        references, kept_share = [[p.target for p in mine]], share_kept(mine, ours)
        scores.append(
            TranslationScore(
                origin,
                len(mine),
                round(bleu.corpus_score(ours, references).score, 2),
                round(chrf.corpus_score(ours, references).score, 2),
                None if kept_share is None else round(kept_share, 1),
            )
        )
    scores.sort(key=lambda s: -s.sentences)
    return TestResult(scores, str(bleu.get_signature()), str(chrf.get_signature()))


def evaluate(pairs: list[SentencePair], translate: Translate) -> TestResult:
    """Translate the sources of `pairs` and score the translations."""
    return score(pairs, translate([p.source for p in pairs]))


THOUSANDS = re.compile(r"(?<=\d)[\s.,](?=\d{3}(?!\d))")
NUMBER = re.compile(r"\d+")
CODE = re.compile(r"(?:https?://|www\.)[^\s,]*\w|\S+@\S+\w|\w*[a-z]+_\w+(?:\(\))?")
EMOJI = re.compile(r"[\U0001f300-\U0001faff\u2600-\u27bf]")
NAME = re.compile(r"[A-Z][a-z]+")
UNDERSTOOD = 50.0  # chrF of a shouted sentence from which it counts as translated


def share_kept(pairs: Sequence[SentencePair], hypotheses: Sequence[str]) -> float | None:
    """Return the percentage of the sentences with something to keep whose translations keep all of
    it.
    """
    judgements = [keeps(pair, text) for pair, text in zip(pairs, hypotheses, strict=True)]
    judged = [judgement for judgement in judgements if judgement is not None]
    return 100 * sum(judged) / len(judged) if judged else None


def keeps(pair: SentencePair, hypothesis: str) -> bool | None:
    """Return whether a translation keeps what it must; None if there is nothing to keep."""
    if is_shouted(pair.source):
        from sacrebleu.metrics import CHRF

        score = CHRF().sentence_score(hypothesis.lower(), [pair.target.lower()]).score
        return is_shouted(hypothesis) and score >= UNDERSTOOD
    copied = copied_strings(pair)
    numbers = numbers_of(pair.target) if NUMBER.search(pair.source) else []
    if not copied and not numbers:
        return None
    return all(word in hypothesis for word in copied) and numbers_of(hypothesis) == numbers


def copied_strings(pair: SentencePair) -> set[str]:
    """Return the addresses, code, emoji and names that occur on both sides."""
    names = NAME.findall(pair.source[1:])  # the first letter is large in any case
    candidates = [*CODE.findall(pair.source), *EMOJI.findall(pair.source), *names]
    return {word for word in candidates if word in pair.target}


def numbers_of(text: str) -> list[str]:
    """Return all numbers of a text, sorted, without thousands separators."""
    return sorted(NUMBER.findall(THOUSANDS.sub("", text)))


def is_shouted(text: str) -> bool:
    return text.isupper() and sum(map(str.isalpha, text)) > 2


@dataclass(frozen=True)
class Everyday:
    """An everyday sentence and its facts; a fact is a tuple of words, one of which must be in the
    translation.
    """

    pair: SentencePair
    facts: tuple[tuple[str, ...], ...]

    def is_said_by(self, translation: str) -> bool:
        """Return whether a translation has every fact, in upper or lower case."""
        said = translation.lower()
        return all(any(word in said for word in words) for words in self.facts)


def read_everyday(path: Path) -> list[Everyday]:
    """Read sentences and facts. Raises OSError, and InputError if the lines of the two files do not
    match.
    """
    pairs = read_pairs(path)
    lines = read_text(path.with_name(f"{path.stem}-facts.txt")).splitlines()
    if len(pairs) != len(lines):
        raise InputError(f"{path} has {len(pairs)} sentences, and facts of {len(lines)}")
    facts = [tuple(tuple(fact.split(",")) for fact in line.split(";")) for line in lines]
    return [Everyday(pair, facts_of_pair) for pair, facts_of_pair in zip(pairs, facts, strict=True)]


def table(sentences: Sequence[Everyday], translations: Sequence[str]) -> str:
    """Return a Markdown table of all translations."""
    rows = ["| | sentence | translation | every fact |", "|---|---|---|---|"]
    for sentence, translation in zip(sentences, translations, strict=True):
        escaped = translation.replace("|", "\\|")
        is_said = "yes" if sentence.is_said_by(translation) else "no"
        rows.append(f"| {sentence.pair.origin} | {sentence.pair.source} | {escaped} | {is_said} |")
    return "\n".join(rows)


def add_special_tokens(
    rows: Sequence[Sequence[int]], added: AddedTokens, max_source_tokens: int
) -> list[list[int]]:
    """Return texts with their special tokens; texts that are too long are cut."""
    prefix, suffix = added.source_prefix, added.source_suffix
    room = max_source_tokens - len(prefix) - len(suffix)
    return [[*prefix, *ids[:room], *suffix] for ids in rows]


def label_numbers(pairs: Sequence[SentencePair], labels: Sequence[str]) -> list[int]:
    """Return the number of each pair's label. Raises InputError if an origin is not a label."""
    numbers = {label: number for number, label in enumerate(labels)}
    if unknown := sorted({pair.origin for pair in pairs} - numbers.keys()):
        raise InputError(f"texts are from {', '.join(unknown)}, of which the model has no label")
    return [numbers[pair.origin] for pair in pairs]


@dataclass(frozen=True)
class LabelScore:
    """The number of texts that have a label, that are predicted to have it, and that are so
    rightly.
    """

    label: str
    texts: int
    given: int
    right: int

    @property
    def recall(self) -> float:
        return self.right / max(self.texts, 1)

    @property
    def precision(self) -> float:
        return self.right / max(self.given, 1)


@dataclass(frozen=True)
class LabelResult:
    """The scores of each label."""

    scores: tuple[LabelScore, ...]

    @property
    def accuracy(self) -> float:
        """Return the share of texts whose label is predicted."""
        total = sum(score.texts for score in self.scores)
        return sum(score.right for score in self.scores) / max(total, 1)

    def as_json(self) -> dict[str, Any]:
        return {"accuracy": self.accuracy, "labels": [asdict(score) for score in self.scores]}

    def as_markdown(self) -> str:
        lines = ["| label | texts | recall | precision |", "| --- | ---: | ---: | ---: |"]
        lines += [
            f"| {s.label} | {s.texts} | {s.recall:.1%} | {s.precision:.1%} |" for s in self.scores
        ]
        return f"{self.accuracy:.1%} of the texts get their label.\n\n" + "\n".join(lines)


def tally(
    labels: Sequence[str], references: Sequence[int], predictions: Sequence[int]
) -> LabelResult:
    """Count predictions by label.

    wanted, given: the number of each text's true and predicted label.
    """
    pairs = [*zip(references, predictions, strict=True)]
    return LabelResult(
        tuple(
            LabelScore(label, [*references].count(i), [*predictions].count(i), pairs.count((i, i)))
            for i, label in enumerate(labels)
        )
    )
