"""Aligns a sentence with its translation, and makes the pictures that Bahdanau et al. 2015 draw."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serving.bundle.manifest import Task
from serving.commands.options import languages_of, translation_decoding
from serving.errors import RequestError

if TYPE_CHECKING:
    from serving.commands.drawing import HeatMap
    from serving.pipelines.cards import ModelCard
    from serving.pipelines.catalog import Catalog, Model
    from serving.pipelines.translation.job import SentenceAttention
import click

from serving.commands.attention_page import write_page
from serving.commands.attention_views import Shade, View, labelled, text_of
from serving.requests.request import AttentionQuery

if TYPE_CHECKING:
    from serving.pipelines.attention_maps import AttentionMap
    from serving.pipelines.cards import ModelCard
    from serving.pipelines.catalog import Catalog, Model

_HEADS_IN_A_ROW = 4

Heads = tuple[int, ...]


@dataclass(frozen=True)
class Panel:
    """The attention of one sentence.

    head: None for the mean over several heads.
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
        from serving.commands.drawing import draw

        draw([part for row in self.rows for part in _in_rows(row, options["pieces"])], path)


async def aligned(catalog: "Catalog", card: "ModelCard", options: dict[str, Any]) -> Alignment:
    """Translate, and say which words of SENTENCE the translation was made from."""
    model = await catalog.get_model(card.name, Task.TRANSLATE)
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
    asked: dict[str, Any] = {"returns_attention": True, "attention_heads": heads}
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
    from serving.commands.drawing import HeatMap

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


Seen = Sequence[Sequence["AttentionMap"]]  # of each sentence, of each look


@dataclass(frozen=True)
class Looks:
    """What the model has written, of a language model behind what it has read, of one that
    only encodes nothing; and of each of its sentences the views, kind by kind.
    """

    model: str
    text: str
    sentences: list[list[View]]

    def as_json(self, options: dict[str, Any]) -> dict[str, Any]:
        views = [[_weights_as_json(view) for view in sentence] for sentence in self.sentences]
        return {"source": options["sentence"], "text": self.text, "attention": views}

    def draw(self, path: Path, options: dict[str, Any]) -> None:
        """Write a page of all that there is, or a picture of the only kind that was asked for.

        Raises RequestError and OSError.
        """
        if options["page"]:
            write_page(path, f"{options['sentence']} · {self.model}", self.sentences)
            return
        from serving.commands.drawing import draw_lines, draw_sheet

        views, shade = [view for [view] in self.sentences], Shade(options["shade"] or Shade.ROW)
        if options["word"] is None:
            draw_sheet(views, shade, path)
        else:
            draw_lines(_with_word(views, options["word"]), options["word"], shade, path)


def _with_word(views: list[View], word: str) -> list[View]:
    found = [view for view in views if word in view.rows]
    if not found:
        words = ", ".join(sorted({each for view in views for each in view.rows}))
        raise RequestError("--word", word, f"is not among those that look: {words}")
    return found


def _weights_as_json(view: View) -> dict[str, Any]:
    return {**asdict(view), "weights": view.weights.tolist()}


async def attended(catalog: "Catalog", card: "ModelCard", options: dict[str, Any]) -> Looks:
    """Return what the words of SENTENCE, or what the model makes of it, look at.

    Raises RequestError.
    """
    looks = tuple(_looks(card, options))
    if card.task is Task.TRANSLATE:
        text, seen = await _translated(await catalog.get_model(card.name), options, looks)
    elif card.task.only_encodes:
        text, seen = await _encoded(await catalog.get_model(card.name), options, looks)
    else:
        text, seen = await _completed(await catalog.get_model(card.name), options, looks)
    views = [[_view(each, options["pieces"]) for each in sentence] for sentence in seen]
    return Looks(card.name, text, views)


def _looks(card: "ModelCard", options: dict[str, Any]) -> list[AttentionQuery]:
    """Ask for all layers and heads where one may choose among them, else for their mean."""
    if not card.attention:
        message = (
            f"has no attention that can be seen: its architecture, {card.architecture}, has none"
        )
        raise RequestError("--model", card.name, message)
    is_mean = not (options["all_heads"] or options["page"])
    layers, heads, kinds = options["layers"], options["heads"], _kinds(card, options)
    for kind in kinds:
        _check_numbers("--layer", layers, kind, card.attention[kind].num_layers)
        _check_numbers("--head", heads, kind, card.attention[kind].num_heads)
    return [AttentionQuery(kind, layers, heads, is_mean) for kind in kinds]


def _check_numbers(option: str, asked: tuple[int, ...], kind: str, count: int) -> None:
    for number in asked:
        if number >= count:
            raise RequestError(option, number, f"of kind {kind} there are {count}, from 0")
    if len(set(asked)) < len(asked):
        raise RequestError(option, asked, "names one more than once; name each once")


def _kinds(card: "ModelCard", options: dict[str, Any]) -> list[str]:
    kind, known = options["kind"], list(card.attention)
    if kind is not None and kind not in known:
        raise RequestError("--kind", kind, f"model {card.name} has {', '.join(known)}")
    if kind is None and len(known) > 1 and not options["page"]:
        raise click.UsageError(f"--kind must be one of {', '.join(known)}")
    return known if kind is None else [kind]


async def _translated(
    model: "Model", options: dict[str, Any], looks: tuple[AttentionQuery, ...]
) -> tuple[str, Seen]:
    from serving.pipelines.translation.job import ScoreJob, TranslationJob

    text, translation = options["sentence"], options["translation"]
    languages = languages_of(model.card, options["source"], options["target"])
    if translation is not None:
        [score] = await model.run(
            ScoreJob("look", ((text, translation),), *languages, attention_queries=looks)
        )
        return translation.strip(), [score.attention_maps]
    decoding = translation_decoding(model.card, options)
    found = await model.run(
        TranslationJob("look", (text,), *languages, decoding, attention_queries=looks)
    )
    return found.texts[0], found.renderings[0][0].attention_maps


async def _encoded(
    model: "Model", options: dict[str, Any], looks: tuple[AttentionQuery, ...]
) -> tuple[str, Seen]:
    from serving.pipelines.jobs import EncodeJob

    found = await model.run(EncodeJob("look", (options["sentence"],), attention_queries=looks))
    return "", found.attention_maps


async def _completed(
    model: "Model", options: dict[str, Any], looks: tuple[AttentionQuery, ...]
) -> tuple[str, Seen]:
    """Ask for one token more than is wanted: the last is written, and read by nobody."""
    from serving.pipelines.decoding import Decoding
    from serving.pipelines.jobs import CompletionJob

    wanted = options["max_tokens"] or 0
    decoding = Decoding(max_new_tokens=wanted + 1)
    job = CompletionJob("look", (options["sentence"],), decoding, attention_queries=looks)
    try:
        [choice] = await model.run(job)
    except RequestError as error:
        if error.field != "max_tokens":
            raise
        message = "do not fit the model's context behind SENTENCE; ask for fewer"
        raise RequestError("--max-tokens", wanted, message) from None
    return text_of(choice.attention_maps[0].row_tokens).strip(), [choice.attention_maps]


def _view(seen: "AttentionMap", by_pieces: bool) -> View:
    rows, columns = seen.row_tokens, seen.column_tokens
    view = View(seen.kind, rows, columns, seen.weights, seen.layers, seen.heads)
    return labelled(view, by_pieces)
