"""`attendant align`: draws which words each word looks at: of a sentence, of its translation, or of
what a language model reads and writes, or a model that only encodes reads.
"""

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from serving.commands.attention_views import Shade
from serving.commands.options import (
    beam_option,
    device_option,
    engine_config,
    model_option,
    source_option,
    target_option,
)
from serving.errors import RequestError

if TYPE_CHECKING:
    from serving.commands.alignments import Alignment, Looks
    from serving.engine.config import EngineConfig
    from serving.pipelines.cards import ModelCard

_SUFFIXES = (".html", ".pdf", ".png", ".svg")
_OF_KINDS = {"layers": "--layer", "shade": "--shade", "word": "--word"}
_OF_GENERATION = {"max_tokens": "--max-tokens"}
_OF_TRANSLATION = {
    "translation": "--translation",
    "num_beams": "--beam",
    "source": "--source",
    "target": "--target",
}


@click.command()
@model_option("translate", "embed", "generate")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The picture, .png, .svg or .pdf, or an interactive page, .html.",
)
@click.option("--json", "as_json", is_flag=True, help="Write words, pieces and weights as JSON.")
@click.option(
    "--kind",
    type=click.Choice(["cross", "encoder", "decoder", "hops"]),
    help="Who looks at what: a translation at its source, the source at itself, what a decoder has "
    "read at what comes before, or hops of an embedding at the text.  [default: how source and "
    "translation align; of a page all]",
)
@click.option("--translation", help="Align with this one, not with the model's own.")
@beam_option
@click.option(
    "--max-tokens",
    type=click.IntRange(0),
    help="Of a language model: draw as many of those that it goes on with, too.  [default: 0]",
)
@click.option("--pieces", is_flag=True, help="Draw the pieces that words are made of.")
@click.option(
    "--layer",
    "layers",
    type=click.IntRange(0),
    multiple=True,
    help="Of a kind: the mean of those named.  [default: all]",
)
@click.option(
    "--head",
    "heads",
    type=click.IntRange(0),
    multiple=True,
    help="Of a model with many: the mean of those named.  [default: all; where source and "
    "translation align, those that align best]",
)
@click.option("--all-heads", is_flag=True, help="Draw each head by itself.")
@click.option("--word", help="Of a kind: draw what this word looks at, as lines.")
@click.option(
    "--shade",
    type=click.Choice([shade.value for shade in Shade]),
    help="Of a kind: a weight is as dark as it is large beside the largest of its row, as it is "
    "large, or as its logarithm is, which shows small ones.  [default: row]",
)
@source_option
@target_option
@device_option
@click.argument("sentence")
def align(model: Path, output: Path | None, as_json: bool, device: str, **options: Any) -> None:
    """Draw what each word looks at.

    It is drawn of a translation, of SENTENCE itself as a translator or a model that only encodes
    reads it, or of what a language model reads and writes.

    Where source and translation align, the source stands across the top, the translation down the
    side; a square is the darker, the less its row's word looks at its column's. A word's weight is
    the sum over its pieces in the source, and the mean over its pieces in the translation. <end>
    is the end of the source, <tag> among its pieces what languages add. Of a Transformer, and of
    others with several heads, the mean of those heads is drawn that the bundle names as aligning
    best. Each sentence of several is drawn by itself.

    With --kind, and of models that do not translate, a square is the darker, the more its row's
    word looks at its column's, and grey where it cannot; hops of an embedding are rows, too. The
    mean over all layers and heads is drawn, over those named, or each by itself: layers down, heads
    across. A page, -o FILE.html, holds all kinds, layers and heads; it is one file and needs no
    network.

    Pictures need matplotlib: pip install 'attendant[plots]'

    \b
    Examples:
      attendant align --model build/bundles/bahdanau-en-fr-int8 'A dog runs.' -o dog.png
      attendant align --model build/bundles/transformer-en-fr-int8 'A dog runs.' -o dog.svg --beam 4
      attendant align --model build/bundles/transformer-en-fr-int8 'A dog runs.' -o dog.html

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

    \b
    What the encoder's words look at, by all heads of all layers; then one word, by one head:
      attendant align --model build/bundles/transformer-en-fr-int8 -o encoder.png \\
        'The dog did not run because it was tired.' --kind encoder --all-heads
      attendant align --model build/bundles/transformer-en-fr-int8 -o it.png \\
        'The dog did not run because it was tired.' --kind encoder --layer 3 --head 1 --word it

    \b
    A language model's, over a prompt and eight tokens more:
      attendant align --model build/bundles/llama-en-int8 -o dark.png 'It was a dark' --max-tokens 8
    """
    options["page"] = output is not None and output.suffix.lower() == ".html"
    _check(output, as_json, options)
    if output is not None and not options["page"]:
        import matplotlib  # noqa: F401, before any work: it may have to be installed
    found = asyncio.run(_found(model, engine_config(device), options))
    if as_json:
        click.echo(json.dumps(found.as_json(options), ensure_ascii=False))
    if output is not None:
        found.draw(output, options)


def _check(output: Path | None, as_json: bool, options: dict[str, Any]) -> None:
    from serving.text.checks import check_text

    if output is None and not as_json:
        raise click.UsageError("say where the picture goes, -o FILE, or ask for --json")
    if output is not None and output.suffix.lower() not in _SUFFIXES:
        message = f"-o {output}: the picture's name must end with one of {', '.join(_SUFFIXES)}"
        raise click.UsageError(message)
    _check_together(options)
    for name in ("sentence", "translation"):
        text = options[name]
        if text is not None:
            check_text(name, text)
            if not text.strip():
                raise RequestError(name, text, "is empty: there is nothing to align")


def _check_together(options: dict[str, Any]) -> None:
    page, word, all_heads = options["page"], options["word"], options["all_heads"]
    if options["heads"] and all_heads:
        raise click.UsageError("--head cannot be combined with --all-heads")
    if options["translation"] is not None and options["num_beams"] is not None:
        raise click.UsageError("--translation cannot be combined with --beam: nothing is searched")
    if word is not None and (all_heads or page):
        raise click.UsageError("--word draws one picture: not --all-heads, and no page")
    if options["shade"] is not None and page:
        raise click.UsageError("--shade is of a picture: on a page it is chosen there")


async def _found(
    path: Path, config: "EngineConfig", options: dict[str, Any]
) -> "Alignment | Looks":
    from serving.commands.alignments import aligned, attended
    from serving.pipelines.loading import open_model

    async with open_model(path, config) as catalog:
        [card] = catalog.local_cards
        _check_task(card, options)
        find = aligned if _is_alignment(card, options) else attended
        return await find(catalog, card, options)


def _check_task(card: "ModelCard", options: dict[str, Any]) -> None:
    from serving.bundle.manifest import Task

    for task, whose, named in (
        (Task.GENERATE, "language models", _OF_GENERATION),
        (Task.TRANSLATE, "models that translate", _OF_TRANSLATION),
    ):
        for name, option in named.items():
            if card.task is not task and options[name] is not None:
                raise click.UsageError(f"{option} is of {whose}")


def _is_alignment(card: "ModelCard", options: dict[str, Any]) -> bool:
    """Without a kind a translation is aligned with its source, as it always was."""
    from serving.bundle.manifest import Task

    if card.task is not Task.TRANSLATE or options["kind"] is not None or options["page"]:
        return False
    for name, option in _OF_KINDS.items():
        if options[name]:
            raise click.UsageError(f"{option} needs --kind, one of {', '.join(card.attention)}")
    return True
