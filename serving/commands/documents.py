"""Translates documents with a model of this machine, for `attendant translate -o`."""

import os
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from serving.commands.common import languages_of, translation_decoding

if TYPE_CHECKING:
    from serving.documents.fragment import Document
    from serving.engine.config import EngineConfig
    from serving.pipelines.catalog import Translator
    from serving.pipelines.translation.job import TranslationJob

_BAR_DELAY_SECONDS = 2.0


async def translate_documents(
    model: Path,
    config: "EngineConfig",
    options: dict[str, Any],
    files: Sequence[Path],
    output: Path,
) -> None:
    """Translate one document after the other. Raises RequestError for what is no document, before
    any is translated.
    """
    from tqdm import tqdm

    from serving.documents.formats.registry import read_document
    from serving.pipelines.loading import opened

    targets = _targets(files, output)
    for path in files:
        read_document(path, path.name)
    async with opened(model, config) as catalog:
        [card] = catalog.own_cards
        translator = await catalog.translator(card.name, "", "")
        source, target = languages_of(card, options["source"], options["target"])
        documents = [read_document(path, path.name, source) for path in files]
        total = sum(len(document.fragments) for document in documents)
        job = _job(source, target, translation_decoding(card, options))
        with tqdm(total=total, unit=" texts", disable=None, delay=_BAR_DELAY_SECONDS) as bar:
            for document, place in zip(documents, targets, strict=True):
                await _translate(document, place, translator, job, bar)


def _job(source: str, target: str, decoding: Any) -> "TranslationJob":
    from serving.documents.fragment import MARKUP
    from serving.pipelines.translation.job import TranslationJob

    return TranslationJob("", (), source, target, decoding, markup=MARKUP, protection=True)


async def _translate(
    document: "Document",
    target: Path,
    translator: "Translator",
    job: "TranslationJob",
    bar: Any,
) -> None:
    from serving.documents.translating import batches, translated

    work = batches(dict(enumerate(document.fragments)))
    texts: list[str] = []
    async with aclosing(translated(translator, job, work, target.name)) as results:
        async for batch in results:
            texts += batch.values()
            bar.update(len(batch))
    with _replacing(target) as begun:
        document.write(texts, begun, job.target)


def _targets(files: Sequence[Path], output: Path) -> list[Path]:
    """Say where each document goes: into a folder, or one to a file."""
    if not files:
        raise click.UsageError("-o needs FILES")
    from serving.documents.formats.registry import result_name

    targets = [output / result_name(path.name) for path in files]
    if len(files) == 1 and not output.is_dir() and output.suffix:
        if output.suffix.lower() != targets[0].suffix.lower():
            raise click.UsageError(
                f"{output} must end with {targets[0].suffix}, as {files[0]} does"
            )
        return [output]
    for path, target in zip(files, targets, strict=True):
        if targets.count(target) > 1 or path.resolve() == target.resolve():
            raise click.UsageError(f"{path} would be written over, as {target}")
    output.mkdir(parents=True, exist_ok=True)
    return targets


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """Give a place to write to; the target is there, whole, once the block has ended well."""
    begun = target.with_name(f".{target.name}.begun")
    try:
        yield begun
        os.replace(begun, target)
    finally:
        begun.unlink(missing_ok=True)
