"""`attendant caption` writes about pictures, and draws what each word looks at in one."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from serving.commands.options import beam_option, device_option, engine_config, model_option
from serving.errors import RequestError

if TYPE_CHECKING:
    from serving.engine.config import EngineConfig
    from serving.pipelines.cards import ModelCard
    from serving.pipelines.jobs import CompletionDelta, CompletionJob

_SUFFIXES = (".pdf", ".png", ".svg")


@click.command()
@model_option("generate", reads_pictures=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Draw what each word looks at in the picture: .png, .svg or .pdf. For one FILE.",
)
@beam_option
@device_option
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False))
def caption(
    model: Path, output: Path | None, num_beams: int | None, device: str, files: tuple[Path, ...]
) -> None:
    """Write a line about the picture in each FILE: PNG, JPEG, WebP or GIF.

    With -o the picture is drawn once for each word, and is the lighter, the more the word looks at
    a place: the mean over the heads of the decoder's last layer. This needs matplotlib: pip install
    'attendant-server[plots]'

    \b
    Examples:
      attendant caption --model build/bundles/vit-gpt2 dog.jpg snow.png
      attendant caption --model build/bundles/vit-gpt2 dog.jpg --beam 4 -o looks.png
    """
    if output is not None:
        import matplotlib  # noqa: F401, before any work: it may have to be installed

        if output.suffix.lower() not in _SUFFIXES:
            message = f"-o {output}: the name must end with one of {', '.join(_SUFFIXES)}"
            raise click.UsageError(message)
        if len(files) > 1:
            raise click.UsageError("-o draws one picture: give one FILE")
    asyncio.run(_write(model, engine_config(device), files, num_beams, output))


async def _write(
    path: Path,
    config: "EngineConfig",
    files: tuple[Path, ...],
    num_beams: int | None,
    output: Path | None,
) -> None:
    from serving.pipelines.loading import open_model

    async with open_model(path, config) as catalog:
        [card] = catalog.local_cards
        [model] = await catalog.models()
        if card.picture is None:
            raise click.UsageError(f"model {card.name} reads no pictures")
        for file in files:
            try:
                [caption] = await model.run(_job(card, file, num_beams, output is not None))
            except RequestError as error:
                if error.field != "messages":
                    raise
                raise error.with_field(str(file)) from None
            click.echo(" ".join(caption.text.split()))
            if output is not None:
                _draw(card, file, caption, output)


def _job(
    card: "ModelCard", file: Path, num_beams: int | None, with_attention: bool
) -> "CompletionJob":
    from serving.pipelines.decoding import MAX_NEW_TOKENS, resolve_decoding
    from serving.pipelines.jobs import CompletionJob
    from serving.requests.parameters import NUM_BEAMS
    from serving.requests.request import AttentionQuery
    from serving.text.chat_template import Chat

    options = {} if num_beams is None else {NUM_BEAMS: num_beams}
    limit = card.generation.get(MAX_NEW_TOKENS)
    decoding = resolve_decoding(options, card.generation, max_new_tokens=limit)
    last = card.attention["cross"].num_layers - 1
    queries = (AttentionQuery("cross", layers=(last,), is_mean=True),) if with_attention else ()
    chat = Chat(({"role": "user", "content": ""},), pictures=(file.read_bytes(),))
    return CompletionJob(str(file), (chat,), decoding, attention_queries=queries)


def _draw(card: "ModelCard", file: Path, caption: "CompletionDelta", output: Path) -> None:
    from serving.commands.attention_views import attention_of_words
    from serving.commands.drawing import draw_word_attention
    from serving.pipelines.completion.images import open_picture

    assert card.picture is not None
    [attention] = caption.attention_maps
    patches = attention.weights[0, 0, :, card.picture.num_class_tokens :]
    words = attention_of_words(attention.row_tokens, patches)
    share = card.picture.size / card.picture.resized
    draw_word_attention(open_picture(file.read_bytes(), str(file)), words, share, output)
