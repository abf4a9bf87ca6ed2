"""The attention that `attendant align` shows: of a translation over its source, or of one kind."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from serving.bundle.manifest import Task
from serving.commands.attention_page import write_page
from serving.commands.attention_views import View, text_of, with_labels
from serving.commands.options import languages_of, translation_decoding
from serving.errors import RequestError
from serving.requests.request import AttentionQuery

if TYPE_CHECKING:
    from serving.commands.drawing import HeatMap
    from serving.pipelines.attention_maps import AttentionMap
    from serving.pipelines.cards import ModelCard
    from serving.pipelines.catalog import Catalog, Model
    from serving.pipelines.translation.job import SentenceAttention

_HEADS_IN_A_ROW = 4

Heads = tuple[int, ...]
AttentionMaps = Sequence[Sequence["AttentionMap"]]  # of each sentence, of each query


@dataclass(frozen=True)
class HeadAttention:
    """The attention of one sentence.

    head: None for the mean over several heads.
    """

    attention: "SentenceAttention"
    head: int | None


@dataclass(frozen=True)
class TranslationAlignment:
    """A translation, and for each of its sentences the attention of each head, or of their mean."""

    translation: str
    rows: list[tuple[HeadAttention, ...]]

    def as_json(self, source: str) -> dict[str, Any]:
        attention = [_head_as_json(head) for row in self.rows for head in row]
        return {"source": source, "translation": self.translation, "attention": attention}

    def write(self, path: Path, options: dict[str, Any]) -> None:
        """Write a picture: a row of heat maps for each sentence, or several. Raises OSError."""
        from serving.commands.drawing import draw_heat_maps

        draw_heat_maps(
            [part for row in self.rows for part in _split_row(row, options["pieces"])], path
        )


async def align_translation(
    catalog: "Catalog", card: "ModelCard", options: dict[str, Any]
) -> TranslationAlignment:
    """Translate, and say which words of SENTENCE the translation was made from."""
    model = await catalog.get_model(card.name, Task.TRANSLATE)
    if not card.num_attention_heads:
        raise RequestError("--model", card.name, card.no_attention)
    heads_of_pictures = _heads_of_pictures(card, options)
    alignments = await asyncio.gather(*(_align(model, options, h) for h in heads_of_pictures))
    translation = alignments[0][0]
    by_head = [
        [HeadAttention(attention, heads[0] if len(heads) == 1 else None) for attention in sentences]
        for heads, (_, sentences) in zip(heads_of_pictures, alignments, strict=True)
    ]
    rows = [row for row in zip(*by_head, strict=True) if row[0].attention.target_words]
    if not rows:
        raise RequestError("translation", translation, "is empty: there is nothing to align")
    return TranslationAlignment(translation, rows)


def _heads_of_pictures(card: "ModelCard", options: dict[str, Any]) -> list[Heads]:
    """Return the heads of each picture; none are those that the bundle recommends."""
    if options["all_heads"]:
        return [(head,) for head in range(card.num_attention_heads)]
    return [options["heads"]]


async def _align(
    model: "Model", options: dict[str, Any], heads: Heads
) -> "tuple[str, Sequence[SentenceAttention]]":
    """Return the translation and its attention. The translation does not depend on the heads."""
    from serving.pipelines.translation.job import ScoreJob, TranslationJob

    text, translation = options["sentence"], options["translation"]
    languages = languages_of(model.card, options["source"], options["target"])
    name = f"heads {heads}"
    attention: dict[str, Any] = {"returns_attention": True, "attention_heads": heads}
    if translation is not None:
        [score] = await model.run(ScoreJob(name, ((text, translation),), *languages, **attention))
        assert score.attention is not None, "attention was asked for"
        return translation.strip(), [score.attention]
    decoding = translation_decoding(model.card, options)
    result = await model.run(TranslationJob(name, (text,), *languages, decoding, **attention))
    return result.texts[0], result.renderings[0][0].attention


def _head_as_json(head: HeadAttention) -> dict[str, Any]:
    number = {} if head.head is None else {"head": head.head}
    return {**number, **asdict(head.attention)}


def _split_row(heads: Sequence[HeadAttention], by_pieces: bool) -> Iterator[list["HeatMap"]]:
    for start in range(0, len(heads), _HEADS_IN_A_ROW):
        yield [_heat_map(head, by_pieces) for head in heads[start : start + _HEADS_IN_A_ROW]]


def _heat_map(head: HeadAttention, by_pieces: bool) -> "HeatMap":
    from serving.commands.drawing import HeatMap

    attention = head.attention
    title = "" if head.head is None else f"head {head.head}"
    if by_pieces:
        *before, end = map(_piece_label, attention.source_tokens)
        source = (*(piece or "<tag>" for piece in before), end or "<end>")
        target = tuple(map(_piece_label, attention.target_tokens))
        return HeatMap(source, target, attention.weights, title)
    source = tuple(word or "<end>" for word in attention.source_words)
    return HeatMap(source, attention.target_words, attention.word_weights, title)


def _piece_label(text: str) -> str:
    """Return a piece with its first blank as a low line, as SentencePiece writes it."""
    return text.replace(" ", "▁")


@dataclass(frozen=True)
class AttentionViews:
    """The views of each sentence, kind by kind.

    text: what the model has written; of a language model behind what it has read, of one that only
        encodes nothing.
    """

    model: str
    text: str
    sentences: list[list[View]]

    def as_json(self, source: str) -> dict[str, Any]:
        views = [[_view_as_json(view) for view in sentence] for sentence in self.sentences]
        return {"source": source, "text": self.text, "attention": views}

    def write(self, path: Path, options: dict[str, Any]) -> None:
        """Write an interactive page. Raises RequestError and OSError."""
        write_page(path, f"{options['sentence']} · {self.model}", self.sentences)


def _view_as_json(view: View) -> dict[str, Any]:
    return {**asdict(view), "weights": view.weights.tolist()}


async def view_attention(
    catalog: "Catalog", card: "ModelCard", options: dict[str, Any]
) -> AttentionViews:
    """Return what the words of SENTENCE, or of what the model writes, attend to.

    Raises RequestError.
    """
    queries = tuple(_queries(card, options))
    model = await catalog.get_model(card.name)
    if card.task is Task.TRANSLATE:
        text, attention = await _translate(model, options, queries)
    elif card.task.only_encodes:
        text, attention = await _encode(model, options, queries)
    else:
        text, attention = await _complete(model, options, queries)
    views = [[_view(maps, options["pieces"]) for maps in sentence] for sentence in attention]
    return AttentionViews(card.name, text, views)


def _queries(card: "ModelCard", options: dict[str, Any]) -> list[AttentionQuery]:
    """Query all layers and heads where one may choose among them, else their mean."""
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


def _check_numbers(option: str, numbers: tuple[int, ...], kind: str, count: int) -> None:
    for number in numbers:
        if number >= count:
            raise RequestError(option, number, f"of kind {kind} there are {count}, from 0")
    if len(set(numbers)) < len(numbers):
        raise RequestError(option, numbers, "names one more than once; name each once")


def _kinds(card: "ModelCard", options: dict[str, Any]) -> list[str]:
    kind, kinds = options["kind"], list(card.attention)
    if kind is not None and kind not in kinds:
        raise RequestError("--kind", kind, f"model {card.name} has {', '.join(kinds)}")
    if kind is None and len(kinds) > 1 and not options["page"]:
        raise click.UsageError(f"--kind must be one of {', '.join(kinds)}")
    return kinds if kind is None else [kind]


async def _translate(
    model: "Model", options: dict[str, Any], queries: tuple[AttentionQuery, ...]
) -> tuple[str, AttentionMaps]:
    from serving.pipelines.translation.job import ScoreJob, TranslationJob

    text, translation = options["sentence"], options["translation"]
    languages = languages_of(model.card, options["source"], options["target"])
    if translation is not None:
        [score] = await model.run(
            ScoreJob("align", ((text, translation),), *languages, attention_queries=queries)
        )
        return translation.strip(), [score.attention_maps]
    decoding = translation_decoding(model.card, options)
    result = await model.run(
        TranslationJob("align", (text,), *languages, decoding, attention_queries=queries)
    )
    return result.texts[0], result.renderings[0][0].attention_maps


async def _encode(
    model: "Model", options: dict[str, Any], queries: tuple[AttentionQuery, ...]
) -> tuple[str, AttentionMaps]:
    from serving.pipelines.jobs import EncodeJob

    job = EncodeJob("align", (options["sentence"],), attention_queries=queries)
    return "", (await model.run(job)).attention_maps


async def _complete(
    model: "Model", options: dict[str, Any], queries: tuple[AttentionQuery, ...]
) -> tuple[str, AttentionMaps]:
    """Ask for one token more than is wanted: the last is written, and read by nobody."""
    from serving.pipelines.decoding import Decoding
    from serving.pipelines.jobs import CompletionJob

    num_tokens = options["max_tokens"] or 0
    decoding = Decoding(max_new_tokens=num_tokens + 1)
    job = CompletionJob("align", (options["sentence"],), decoding, attention_queries=queries)
    try:
        [choice] = await model.run(job)
    except RequestError as error:
        if error.field != "max_tokens":
            raise
        message = "do not fit the model's context behind SENTENCE; ask for fewer"
        raise RequestError("--max-tokens", num_tokens, message) from None
    return text_of(choice.attention_maps[0].row_tokens).strip(), [choice.attention_maps]


def _view(maps: "AttentionMap", by_pieces: bool) -> View:
    rows, columns = maps.row_tokens, maps.column_tokens
    view = View(maps.kind, rows, columns, maps.weights, maps.layers, maps.heads)
    return with_labels(view, by_pieces)
