"""`attendant translate` reads lines and writes them translated."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from serving.commands.options import (
    decoding_options,
    device_option,
    end_quietly_with_the_reader,
    engine_config,
    languages_of,
    lines_of,
    model_option,
    progress_bar,
    source_option,
    target_option,
    translation_decoding,
)
from serving.pipelines.routing import find_translator
from serving.pipelines.translation.options import TRANSLATION_OPTIONS
from serving.storage.files import replacing

if TYPE_CHECKING:
    from serving.engine.config import EngineConfig
    from serving.pipelines.cards import ModelCard
    from serving.pipelines.translation.job import Rendering, TranslationJob
from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serving.documents.document import Document
    from serving.engine.config import EngineConfig
    from serving.pipelines.catalog import Translator
    from serving.pipelines.translation.job import TranslationJob

# A line's number and its renderings, best first, as they are written out.
Format = Callable[[int, "tuple[Rendering, ...]"], str]
WINDOWS = 16  # full batches of lines that are read ahead: among them the longest go first


@click.command()
@model_option("translate")
@source_option
@target_option
@decoding_options()
@click.option("--n-best", type=click.IntRange(1), help="Write so many translations of each line.")
@click.option("--scores", is_flag=True, help="Write each line's score after a tab.")
@click.option("--prefix", default="", help=TRANSLATION_OPTIONS["target_prefix"].help)
@click.option(
    "--protect/--no-protect",
    default=True,
    show_default=True,
    help=TRANSLATION_OPTIONS["protect"].help
    + " Never with --alignments, which are of the lines as they are.",
)
@click.option(
    "--alignments",
    type=click.File("w", encoding="utf-8"),
    help="Write word alignments here, in Pharaoh format.",
)
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Translate FILES as documents, one to this file, or any number into this folder.",
)
@device_option
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, allow_dash=True))
def translate(
    model: Path,
    alignments: TextIO | None,
    output: Path | None,
    device: str,
    files: tuple[Path, ...],
    **options: Any,
) -> None:
    """Translate a file of FILES, or standard input, line by line; with -o all FILES as documents.

    Lines keep their order and their blanks; many are translated at once. What options do not say is
    as the bundle's makers recommend, else greedy. A score is the mean log-probability of a token.

    \b
    Examples:
      attendant translate --model build/bundles/transformer-en-fr-int8 < in.txt > out.txt
      echo 'A dog runs in the snow.' | attendant translate --model build/bundles/bahdanau-en-fr-int8
      attendant translate --model build/bundles/transformer-en-fr-int8 --beam 4 --scores in.txt

    \b
    The four best of each line as Moses writes them, 'number ||| translation ||| score':
      attendant translate --model build/bundles/transformer-en-fr-int8 --beam 8 --n-best 4 in.txt

    \b
    Which word comes of which, '0-0 1-2' for each line:
      attendant translate --model build/bundles/transformer-en-fr-int8 --alignments out.align in.txt

    \b
    A model of many languages, which are called as it calls them or by their short names:
      attendant translate --model nllb-200 --source en --target pt in.txt

    \b
    Documents keep their layout (.txt .html .htm .md .docx .pptx .xlsx .odt .epub .idml .srt .vtt
    .po .pot .xliff .xlf .sdlxliff .tmx); of a .pdf the text is translated, to a .txt:
      attendant translate document.docx -o out.docx --model build/bundles/transformer-en-fr-int8
      attendant translate *.docx *.srt -o translated/ --model build/bundles/transformer-en-fr-int8
    """
    from serving.documents.formats.registry import is_packed
    from serving.pipelines.loading import FILE_SLOTS
    from serving.text.checks import check_text

    end_quietly_with_the_reader()
    check_text("--prefix", options["prefix"])
    config = engine_config(device, slots=FILE_SLOTS)
    if output is not None:
        idle = {"n_best", "scores", "prefix"} & {name for name in options if options[name]}
        if idle or alignments:
            raise click.UsageError("--n-best, --scores, --prefix and --alignments are of lines")
        asyncio.run(translate_documents(model, config, options, files, output))
    elif len(files) > 1:
        raise click.UsageError("several FILES need -o FOLDER; they are translated as documents")
    elif files and is_packed(files[0].name):
        raise click.UsageError(f"{files[0]} is a document: give -o FILE for its translation")
    elif files and files[0].is_dir():
        raise click.UsageError(f"{files[0]} is a folder; FILES have texts, --model names a bundle")
    else:
        with click.open_file(str(files[0]) if files else "-", "rb") as file:
            asyncio.run(_translate(model, config, options, file, alignments))


def _job(card: "ModelCard", options: dict[str, Any], returns_alignments: bool) -> "TranslationJob":
    """Make the job of every line, but for the line."""
    from serving.pipelines.translation.job import TranslationJob

    n_best = options["n_best"] or 1
    return TranslationJob(
        "",
        (),
        *languages_of(card, options["source"], options["target"]),
        translation_decoding(card, options, n_best),
        num_alternatives=n_best - 1,
        target_prefix=options["prefix"],
        returns_scores=bool(options["scores"] or options["n_best"]),
        returns_alignments=returns_alignments,
        protection=options["protect"] and not returns_alignments,
    )


def _format(options: dict[str, Any]) -> Format:
    if options["n_best"]:
        return lambda number, ranked: "".join(
            f"{number} ||| {hypothesis.text.strip()} ||| {hypothesis.score:.4f}\n"
            for hypothesis in ranked
        )
    if options["scores"]:
        return lambda number, ranked: f"{ranked[0].text.rstrip()}\t{ranked[0].score:.4f}\n"
    return lambda number, ranked: ranked[0].text


async def _translate(
    path: Path,
    config: "EngineConfig",
    options: dict[str, Any],
    file: Any,
    alignments: TextIO | None,
) -> None:
    from dataclasses import replace

    from serving.bundle.manifest import Task
    from serving.pipelines.loading import open_model
    from serving.pipelines.streams import in_order
    from serving.requests.request import MAX_PRIORITY, FinishReason

    async with open_model(path, config) as catalog:
        [card] = catalog.local_cards
        await catalog.get_model(card.name, Task.TRANSLATE)
        job = _job(card, options, returns_alignments=alignments is not None)
        translator = await find_translator(catalog, card.name, job.source, job.target)
        format_line = _format(options)
        longest_first = file.seekable()  # whoever waits for a pipe's first line waits for no others

        async def work(numbered: tuple[int, str]) -> "tuple[int, tuple[Rendering, ...]]":
            number, line = numbered
            priority = -min(len(line), MAX_PRIORITY) if longest_first else 0
            decoding = replace(job.decoding, priority=priority)
            translation = await translator.run(
                replace(job, request_id=str(number), texts=(line,), decoding=decoding)
            )
            bar.update()  # lines end in any order
            return number, translation.renderings[0]

        cut: list[int] = []
        with progress_bar(file) as bar:
            window = WINDOWS * config.slots
            async for number, ranked in in_order(work, enumerate(lines_of(file)), window):
                if ranked[0].reason is FinishReason.LENGTH:
                    cut.append(number + 1)
                sys.stdout.write(format_line(number, ranked))
                sys.stdout.flush()
                if alignments is not None:
                    best = ranked[0].alignment
                    alignments.write((best.pharaoh if best else "") + "\n")
        _note_cut("line", cut)


def _note_cut(name: str, numbers: Sequence[int]) -> None:
    """Say on standard error which translations may lack their end."""
    if numbers:
        listed = ", ".join(map(str, numbers[:_MOST_SHOWN])) + ", ..." * (len(numbers) > _MOST_SHOWN)
        message = f"note: translations that ended by their limit of tokens: {name} {listed}"
        click.echo(message, err=True)


_BAR_DELAY_SECONDS = 2.0
_MOST_SHOWN = 20  # lines in a note


async def translate_documents(
    model: Path,
    config: "EngineConfig",
    options: dict[str, Any],
    files: Sequence[Path],
    output: Path,
) -> None:
    """Translate documents one after another. Raises RequestError for a file that is not a document,
    before any is translated.
    """
    from tqdm import tqdm

    from serving.bundle.opening import open_manifest
    from serving.documents.formats.registry import read_document
    from serving.pipelines.cards import ModelCard
    from serving.pipelines.loading import open_model

    targets = _targets(files, output)
    card = ModelCard.from_manifest(open_manifest(model))
    source, target = languages_of(card, options["source"], options["target"])
    reading = tqdm(files, desc="reading", unit=" files", leave=False, disable=None)
    documents = [read_document(path, path.name, source, target) for path in reading]
    async with open_model(model, config) as catalog:
        translator = await find_translator(catalog, card.name, source, target)
        total = sum(len(document.fragments) for document in documents)
        job = _document_job(source, target, translation_decoding(card, options))
        with tqdm(total=total, unit=" texts", disable=None, delay=_BAR_DELAY_SECONDS) as bar:
            for document, place in zip(documents, targets, strict=True):
                await _translate_files(document, place, translator, job, bar)


def _document_job(source: str, target: str, decoding: Any) -> "TranslationJob":
    from serving.documents.fragment import MARKUP
    from serving.pipelines.translation.job import TranslationJob

    return TranslationJob("", (), source, target, decoding, markup=MARKUP, protection=True)


async def _translate_files(
    document: "Document",
    target: Path,
    translator: "Translator",
    job: "TranslationJob",
    bar: Any,
) -> None:
    from serving.documents.translating import split_into_batches, translate_batches
    from serving.requests.request import FinishReason

    work = split_into_batches(dict(enumerate(document.fragments)))
    texts: list[str] = []
    cut: list[int] = []
    async with aclosing(translate_batches(translator, job, work, target.name)) as results:
        async for batch in results:
            texts += (best.text for best in batch.values())
            cut += (n + 1 for n, best in batch.items() if best.reason is FinishReason.LENGTH)
            bar.update(len(batch))
    _note_cut(f"{target.name}, text", cut)
    with replacing(target) as begun:
        document.write(texts, begun, job.target)


def _targets(files: Sequence[Path], output: Path) -> list[Path]:
    """Return where each document goes: into a folder, or one to a file."""
    if not files:
        raise click.UsageError("-o needs FILES")
    from serving.documents.formats.registry import result_name

    targets = [output / result_name(path.name) for path in files]
    is_folder = len(files) > 1 or output.is_dir() or not output.suffix
    if not is_folder:
        if output.suffix.lower() != targets[0].suffix.lower():
            raise click.UsageError(
                f"{output} must end with {targets[0].suffix}, as {files[0]} does"
            )
        targets = [output]
    for path, target in zip(files, targets, strict=True):
        if targets.count(target) > 1 or path.resolve() == target.resolve():
            raise click.UsageError(f"{path} would be written over, as {target}")
    if is_folder:
        output.mkdir(parents=True, exist_ok=True)
    return targets
