"""`attendant align`: draws which words of a sentence each word of its translation looks at."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from serving.commands.common import (
    device_option,
    engine_config,
    languages_of,
    model_option,
    source_option,
    target_option,
    translation_decoding,
)
from serving.commands.decoding import beam_option
from serving.errors import RequestError

if TYPE_CHECKING:
    from serving.commands.heatmap import HeatMap
    from serving.engine.config import EngineConfig
    from serving.pipelines.cards import ModelCard
    from serving.pipelines.catalog import Scorer
    from serving.pipelines.translation.job import SentenceAttention

_HEADS_IN_A_ROW = 4
_SUFFIXES = (".pdf", ".png", ".svg")

Heads = tuple[int, ...]


@dataclass(frozen=True)
class Panel:
    """Holds what one sentence attends to.

    head: None if it is the mean over several.
    """

    attention: "SentenceAttention"
    head: int | None


@click.command()
@model_option
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The picture: .png, .svg or .pdf."
)
@click.option("--json", "as_json", is_flag=True, help="Write words, pieces and weights as JSON.")
@click.option("--translation", help="Align with this one, not with the model's own.")
@beam_option
@click.option("--pieces", is_flag=True, help="Draw the pieces that words are made of.")
@click.option(
    "--head",
    "heads",
    type=click.IntRange(0),
    multiple=True,
    help="Of a model with many: the mean of those named.  [default: those that align best]",
)
@click.option("--all-heads", is_flag=True, help="Draw each head by itself.")
@source_option
@target_option
@device_option
@click.argument("sentence")
def align(
    model: Path, output: Path | None, as_json: bool, device: str, pieces: bool, **options: Any
) -> None:
    """Translate SENTENCE and draw what each word of the translation attends to.

    The source stands across the top, the translation down the side; a square is the darker, the
    less its row's word looks at its column's. A word's weight is the sum over its pieces in the
    source, and the mean over its pieces in the translation. <end> is the end of the source, <tag>
    among its pieces what languages add. Of a Transformer, and of others with several heads, the
    mean of those heads is drawn that the bundle names as aligning best. Each sentence of several is
    drawn by itself. Needs matplotlib: pip install 'attendant[plots]'

    \b
    Examples:
      attendant align --model build/bundles/bahdanau-en-fr-int8 'A dog runs.' -o dog.png
      attendant align --model build/bundles/transformer-en-fr-int8 'A dog runs.' -o dog.svg --beam 4

    \b
    How a translation of your own aligns, whatever the model would say:
      attendant align --model build/bundles/bahdanau-en-fr-int8 -o dog.png \\
        'A dog runs in the snow.' --translation 'Un chien court dans la neige.'

    \b
    All heads side by side, numbered from 0 through the decoder's layers; then the mean of two:
      attendant align --model build/bundles/transformer-en-fr-int8 -o heads.png \\
        'A dog runs.' --all-heads
      attendant align --model build/bundles/transformer-en-fr-int8 -o mean.png \\
        'A dog runs.' --head 4 --head 6
    """
    _check(output, as_json, options)
    if output is not None:
        from serving.commands import heatmap  # before any work: it may have to be installed
    translation, rows = asyncio.run(_aligned(model, engine_config(device), options))
    if as_json:
        panels = [_as_json(panel) for row in rows for panel in row]
        answer = {"source": options["sentence"], "translation": translation, "attention": panels}
        click.echo(json.dumps(answer, ensure_ascii=False))
    if output is not None:
        heatmap.draw([part for row in rows for part in _in_rows(row, pieces)], output)


def _check(output: Path | None, as_json: bool, options: dict[str, Any]) -> None:
    from serving.text.plain_text import check_text

    if output is None and not as_json:
        raise click.UsageError("say where the picture goes, -o FILE, or ask for --json")
    if output is not None and output.suffix.lower() not in _SUFFIXES:
        message = f"-o {output}: the picture's name must end with one of {', '.join(_SUFFIXES)}"
        raise click.UsageError(message)
    if options["heads"] and options["all_heads"]:
        raise click.UsageError("--head cannot be combined with --all-heads")
    if options["translation"] is not None and options["num_beams"] is not None:
        raise click.UsageError("--translation cannot be combined with --beam: nothing is searched")
    for name in ("sentence", "translation"):
        text = options[name]
        if text is not None:
            check_text(name, text)
            if not text.strip():
                raise RequestError(name, text, "is empty: there is nothing to align")


async def _aligned(
    path: Path, config: "EngineConfig", options: dict[str, Any]
) -> tuple[str, list[tuple[Panel, ...]]]:
    """Return the translation, and for each of its sentences a panel, or one for each head."""
    from serving.pipelines.offline import opened

    async with opened(path, config) as catalog:
        [card] = catalog.own_cards
        model = await catalog.scorer(card.name, "", "")
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
    return translation, rows


def _chosen_heads(card: "ModelCard", options: dict[str, Any]) -> list[Heads]:
    """Each of which is a picture. None in particular are those that the bundle recommends."""
    if options["all_heads"]:
        return [(head,) for head in range(card.num_attention_heads)]
    return [options["heads"]]


async def _align(
    model: "Scorer", options: dict[str, Any], heads: Heads
) -> "tuple[str, Sequence[SentenceAttention]]":
    """Decoding does not depend on the heads, so that all ways to look tell of one translation."""
    from serving.pipelines.translation.job import ScoreJob, TranslationJob

    text, translation = options["sentence"], options["translation"]
    languages = languages_of(model.card, options["source"], options["target"])
    name = f"heads {heads}"
    asked: dict[str, Any] = {"tells_attention": True, "attention_heads": heads}
    if translation is not None:
        [score] = await model.score(ScoreJob(name, ((text, translation),), *languages, **asked))
        assert score.attention is not None, "attention was asked for"
        return translation.strip(), [score.attention]
    decoding = translation_decoding(model.card, options)
    found = await model.translate(TranslationJob(name, (text,), *languages, decoding, **asked))
    return found.texts[0], found.renderings[0][0].attention


def _as_json(panel: Panel) -> dict[str, Any]:
    head = {} if panel.head is None else {"head": panel.head}
    return {**head, **asdict(panel.attention)}


def _in_rows(panels: Sequence[Panel], pieces: bool) -> Iterator[list["HeatMap"]]:
    for start in range(0, len(panels), _HEADS_IN_A_ROW):
        yield [_heat_map(panel, pieces) for panel in panels[start : start + _HEADS_IN_A_ROW]]


def _heat_map(panel: Panel, pieces: bool) -> "HeatMap":
    from serving.commands.heatmap import HeatMap

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
