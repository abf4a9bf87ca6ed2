"""`attendant align` shows what each word attends to: of a sentence, of its translation, of what a
language model reads and writes, or of what a model that only encodes reads.
"""

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

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
    from serving.commands.alignments import AttentionViews, TranslationAlignment
    from serving.engine.config import EngineConfig
    from serving.pipelines.cards import ModelCard

_SUFFIXES = (".html", ".pdf", ".png", ".svg")
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
    help="An interactive page, .html; of an alignment also a picture, .png, .svg or .pdf.",
)
@click.option("--json", "as_json", is_flag=True, help="Write words, pieces and weights as JSON.")
@click.option(
    "--kind",
    type=click.Choice(["cross", "encoder", "decoder", "hops"]),
    help="What attends to what: a translation to its source, the source to itself, what a decoder "
    "has read to what comes before, or hops of an embedding to the text.  [default: how source and "
    "translation align; of a page all]",
)
@click.option("--translation", help="Align with this one, not with the model's own.")
@beam_option
@click.option(
    "--max-tokens",
    type=click.IntRange(0),
    help="Of a language model: show as many of those that it goes on with, too.  [default: 0]",
)
@click.option("--pieces", is_flag=True, help="Show the pieces that words are made of.")
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
@click.option("--all-heads", is_flag=True, help="Show each head by itself.")
@source_option
@target_option
@device_option
@click.argument("sentence")
def align(model: Path, output: Path | None, as_json: bool, device: str, **options: Any) -> None:
    """Show what each word attends to.

    Of a translation it is how the translation aligns with SENTENCE. The source stands across the
    top of the picture, the translation down the side; a square is the darker, the less its row's
    word attends to its column's. A word's weight is the sum over its pieces in the source, and the
    mean over its pieces in the translation. <end> is the end of the source, <tag> among its pieces
    what languages add. Of a Transformer, and of others with several heads, the mean of those heads
    is drawn that the bundle names as aligning best. Each sentence of several is drawn by itself.

    A page, -o FILE.html, holds all kinds of attention, layers and heads of any model: also of what
    a language model, or one that only encodes, reads and writes. It is one file and needs no
    network. --kind, --layer and --head select what it holds; --json has the same as numbers, the
    mean over all layers and heads, over those named, or each by itself.

    Pictures need matplotlib: pip install 'attendant-server[plots]'

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
    What the encoder's words attend to, as numbers: all heads of all layers:
      attendant align --model build/bundles/transformer-en-fr-int8 --json \\
        'The dog did not run because it was tired.' --kind encoder --all-heads

    \b
    A language model's, over a prompt and eight tokens more:
      attendant align --model build/bundles/llama-en-int8 -o dark.html \\
        'It was a dark' --max-tokens 8
    """
    options["page"] = output is not None and output.suffix.lower() == ".html"
    _check(output, as_json, options)
    attention = asyncio.run(_find_attention(model, engine_config(device), output, options))
    if as_json:
        click.echo(json.dumps(attention.as_json(options["sentence"]), ensure_ascii=False))
    if output is not None:
        attention.write(output, options)


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
    if options["heads"] and options["all_heads"]:
        raise click.UsageError("--head cannot be combined with --all-heads")
    if options["translation"] is not None and options["num_beams"] is not None:
        raise click.UsageError("--translation cannot be combined with --beam: nothing is searched")


async def _find_attention(
    path: Path, config: "EngineConfig", output: Path | None, options: dict[str, Any]
) -> "TranslationAlignment | AttentionViews":
    from serving.commands.alignments import align_translation, view_attention
    from serving.pipelines.loading import open_model

    async with open_model(path, config) as catalog:
        [card] = catalog.local_cards
        _check_task(card, options)
        if _is_alignment(card, options):
            if output is not None:
                import matplotlib  # noqa: F401, before any work: it may have to be installed
            return await align_translation(catalog, card, options)
        if output is not None and not options["page"]:
            message = f"-o {output}: what is no alignment is shown on a page; name it FILE.html"
            raise click.UsageError(message)
        return await view_attention(catalog, card, options)


def _check_task(card: "ModelCard", options: dict[str, Any]) -> None:
    from serving.bundle.manifest import Task

    for task, models, option_names in (
        (Task.GENERATE, "language models", _OF_GENERATION),
        (Task.TRANSLATE, "models that translate", _OF_TRANSLATION),
    ):
        for name, option in option_names.items():
            if card.task is not task and options[name] is not None:
                raise click.UsageError(f"{option} is of {models}")


def _is_alignment(card: "ModelCard", options: dict[str, Any]) -> bool:
    """Return whether a translation is to be aligned with its source: the default without a kind."""
    from serving.bundle.manifest import Task

    if card.task is not Task.TRANSLATE or options["kind"] is not None or options["page"]:
        return False
    if options["layers"]:
        raise click.UsageError(f"--layer needs --kind, one of {', '.join(card.attention)}")
    return True
