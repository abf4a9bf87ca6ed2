"""A translator that needs no model: it writes the words of fragments in capitals."""

import asyncio
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from serving.bundle.manifest import Task
from serving.documents.formats.registry import read_document
from serving.pipelines.cards import ModelCard
from serving.pipelines.catalog import Catalog
from serving.pipelines.translation.job import Rendering, Translation, TranslationJob
from serving.pipelines.translation.quality import SegmentQuality

_PIECE = re.compile(r"<k [^>]*>[^<]*</k>|<[^>]*>|&\w+;|[^<&]+")


def shout_fragment(fragment: str) -> str:
    """The fragment with its text in capitals, its codes where they are."""
    return _PIECE.sub(lambda found: _loud(found.group()), fragment)


def _loud(piece: str) -> str:
    return piece if piece[0] in "<&" else piece.upper()


def shout_file(path: Path, target: Path) -> list[str]:
    """Write the file in capitals, and return its fragments."""
    document = read_document(path, path.name)
    fragments = [*document.fragments]
    document.write([shout_fragment(fragment) for fragment in fragments], target, "fr")
    return fragments


def _shouting(text: str, job: TranslationJob) -> Rendering:
    """Texts of dogs are of the best quality, others of the worst."""
    score = float("dog" in text)
    quality = (SegmentQuality(score, 1, (), ()),) if job.returns_quality else ()
    return Rendering(shout_fragment(text), quality=quality)


class ShoutingTranslator:
    """jobs: all that was asked. gate: jobs wait here, when there is one. errors: raised first."""

    def __init__(self) -> None:
        self.card = ModelCard("shout", Task.TRANSLATE, ("en",), ("fr",), 100, "transformer", 1)
        self.jobs: list[TranslationJob] = []
        self.gate: asyncio.Event | None = None
        self.errors: list[Exception] = []
        self.lets_pass = 0  # jobs that need not wait

    @property
    def catalog(self) -> Catalog:
        model: Any = self
        return Catalog([model])

    @property
    def texts(self) -> list[str]:
        return [text for job in self.jobs for text in job.texts]

    async def run(self, job: TranslationJob) -> Translation:
        if self.errors:
            raise self.errors.pop(0)
        self.jobs.append(job)
        if self.gate is not None and len(self.jobs) > self.lets_pass:
            await self.gate.wait()
        return Translation(tuple((_shouting(text, job),) for text in job.texts), 1, 1)

    async def stream(self, job: TranslationJob) -> AsyncGenerator[Any, None]:
        for text in job.texts:
            yield text
