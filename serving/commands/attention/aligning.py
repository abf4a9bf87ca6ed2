"""Aligns a sentence with its translation, and makes the pictures that Bahdanau et al. 2015 draw."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serving.bundle.manifest import Task
from serving.commands.common import languages_of, translation_decoding
from serving.errors import RequestError

if TYPE_CHECKING:
    from serving.commands.attention.heatmap import HeatMap
    from serving.pipelines.cards import ModelCard
    from serving.pipelines.catalog import Catalog, Model
    from serving.pipelines.translation.job import SentenceAttention

_HEADS_IN_A_ROW = 4

Heads = tuple[int, ...]


@dataclass(frozen=True)
class Panel:
    """What one sentence attends to.

    head: None if it is the mean over several.
    """

    attention: "SentenceAttention"
    head: int | None


@dataclass(frozen=True)
class Alignment:
    """A translation, and for each of its sentences a panel, or one for each head."""

    translation: str
    rows: list[tuple[Panel, ...]]

    def as_json(self, options: dict[str, Any]) -> dict[str, Any]:
        panels = [_as_json(panel) for row in self.rows for panel in row]
        source = options["sentence"]
        return {"source": source, "translation": self.translation, "attention": panels}

    def draw(self, path: Path, options: dict[str, Any]) -> None:
        """Draw a row for each sentence, or several. Raises OSError."""
        from serving.commands.attention.heatmap import draw

        draw([part for row in self.rows for part in _in_rows(row, options["pieces"])], path)


async def aligned(catalog: "Catalog", card: "ModelCard", options: dict[str, Any]) -> Alignment:
    """Translate, and say which words of SENTENCE the translation was made from."""
    model = await catalog.named(card.name, Task.TRANSLATE)
    if not card.num_attention_heads:
        raise RequestError("--model", card.name, card.no_attention)
    chosen = _chosen_heads(card, options)
    found = await asyncio.gather(*(_align(model, options, heads) for heads in chosen))
    translation = found[0][0]
    by_head = [
        [Panel(attention, heads[0] if len(heads) == 1 else None) for attention in sentences]
        for heads, (_, sentences) in zip(chosen, found, strict=True)
    ]
    rows = [row for row in zip(*by_head, strict=True) if row[0].attention.target_words]
    if not rows:
        raise RequestError("translation", translation, "is empty: there is nothing to align")
    return Alignment(translation, rows)


def _chosen_heads(card: "ModelCard", options: dict[str, Any]) -> list[Heads]:
    """Each of which is a picture. None in particular are those that the bundle recommends."""
    if options["all_heads"]:
        return [(head,) for head in range(card.num_attention_heads)]
    return [options["heads"]]


async def _align(
    model: "Model", options: dict[str, Any], heads: Heads
) -> "tuple[str, Sequence[SentenceAttention]]":
    """Decoding does not depend on the heads, so that all ways to look tell of one translation."""
    from serving.pipelines.translation.job import ScoreJob, TranslationJob

    text, translation = options["sentence"], options["translation"]
    languages = languages_of(model.card, options["source"], options["target"])
    name = f"heads {heads}"
    asked: dict[str, Any] = {"tells_attention": True, "attention_heads": heads}
    if translation is not None:
        [score] = await model.run(ScoreJob(name, ((text, translation),), *languages, **asked))
        assert score.attention is not None, "attention was asked for"
        return translation.strip(), [score.attention]
    decoding = translation_decoding(model.card, options)
    found = await model.run(TranslationJob(name, (text,), *languages, decoding, **asked))
    return found.texts[0], found.renderings[0][0].attention


def _as_json(panel: Panel) -> dict[str, Any]:
    head = {} if panel.head is None else {"head": panel.head}
    return {**head, **asdict(panel.attention)}


def _in_rows(panels: Sequence[Panel], pieces: bool) -> Iterator[list["HeatMap"]]:
    for start in range(0, len(panels), _HEADS_IN_A_ROW):
        yield [_heat_map(panel, pieces) for panel in panels[start : start + _HEADS_IN_A_ROW]]


def _heat_map(panel: Panel, pieces: bool) -> "HeatMap":
    from serving.commands.attention.heatmap import HeatMap

    attention = panel.attention
    title = "" if panel.head is None else f"head {panel.head}"
    if pieces:
        *before, end = map(_piece, attention.source_tokens)
        source = (*(piece or "<tag>" for piece in before), end or "<end>")
        target = tuple(map(_piece, attention.target_tokens))
        return HeatMap(source, target, attention.weights, title)
    source = tuple(word or "<end>" for word in attention.source_words)
    return HeatMap(source, attention.target_words, attention.word_weights, title)


def _piece(text: str) -> str:
    """Write a piece that begins a word with a low line, as SentencePiece writes it."""
    return text.replace(" ", "▁")
