"""Makes functions from texts to texts of models: of a bundle by all that serves it, of a checkpoint
by plain torch loops. Both cut a text into the same sentences, so that their scores compare.
"""

import asyncio
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from export.bundling.conventions import tokens_of
from models.data.tokenizer import read_tokenizer
from models.storage.checkpoint import TOKENIZER_FILE, Checkpoint, load_checkpoint
from serving.bundle.manifest import Limits
from serving.bundle.opening import open_bundle
from serving.engine.config import EngineConfig
from serving.pipelines.cards import ModelCard
from serving.pipelines.decoding import resolve
from serving.pipelines.loading import opened
from serving.pipelines.streams import in_order
from serving.pipelines.translation.job import TranslationJob
from serving.pipelines.translation.planning import Planner
from serving.pipelines.translation.tokenizer_pair import TokenizerPair
from serving.text.sentences import TextLayout
from serving.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from models.evaluation.scores import Translate


def translator(folder: Path, num_beams: int | None = None, protects: bool = False) -> "Translate":
    """Open the checkpoint or the bundle in `folder`. Without `num_beams` a bundle decodes as its
    makers recommend, all else greedily.

    protects: what must not change reaches the translation as it is, and capitals are read as small
        letters, as services do by default.

    Raises CheckpointError or BundleError, ValueError for a language model, or for a checkpoint that
    is to protect: only what serves a bundle does.
    """
    if (folder / "bundle.json").exists():
        return _of_bundle(folder, num_beams, protects)
    if protects:
        raise ValueError(f"{folder} is a checkpoint; only bundles are served, and protect")
    return _of_checkpoint(folder, num_beams)


def job_of(folder: Path, num_beams: int | None, num_hypotheses: int = 1) -> TranslationJob:
    """Make a job of no texts for the bundle in `folder`, decoded as `translator` says. Raises
    BundleError, ValueError for what does not translate.
    """
    card = ModelCard.from_manifest(open_bundle(folder).manifest)
    _must_translate(card.task)
    given = {} if num_beams is None else {"num_beams": num_beams}
    source = card.source_languages[0]
    target = card.targets_of(source)[0]
    return TranslationJob("", (), source, target, resolve(given, card.generation, num_hypotheses))


def _of_bundle(folder: Path, num_beams: int | None, protects: bool) -> "Translate":
    job = replace(job_of(folder, num_beams), protection=protects)
    return lambda texts: asyncio.run(_translated(folder, job, texts))


async def _translated(folder: Path, job: TranslationJob, texts: list[str]) -> list[str]:
    """Each text is a job of its own, as a line of `attendant translate` is."""
    config = EngineConfig(max_waiting=None)
    async with opened(folder, config) as catalog:
        [card] = catalog.own_cards
        model = await catalog.translator(card.name, job.source, job.target)

        async def work(numbered: tuple[int, str]) -> str:
            number, text = numbered
            own = replace(job, request_id=str(number), texts=(text,))
            return (await model.run(own)).texts[0]

        found: list[str] = []
        with tqdm(total=len(texts), desc="decoding", unit="text", leave=False, disable=None) as bar:
            async for text in in_order(work, enumerate(texts), config.slots * 8):
                found.append(text)
                bar.update()
        return found


def _of_checkpoint(folder: Path, num_beams: int | None) -> "Translate":
    from models.decoding.translation import translate, translate_by_beams
    from models.loading import load_module

    checkpoint = load_checkpoint(folder)
    _must_translate(checkpoint.config.task)
    module, tokenizer = load_module(checkpoint), read_tokenizer(checkpoint.tokenizer)

    def translated(texts: list[str]) -> list[str]:
        layouts = _layouts(checkpoint, texts)
        segments = [segment for layout in layouts for segment in layout.segments]
        if num_beams is None:
            found = translate(module, tokenizer, segments)
        else:
            found = translate_by_beams(module, tokenizer, segments, num_beams)
        rest = (text.strip() for text in found)
        return [layout.fill(list(islice(rest, len(layout.segments)))) for layout in layouts]

    return translated


def _layouts(checkpoint: Checkpoint, texts: list[str]) -> tuple[TextLayout, ...]:
    """Cut the texts into sentences, as the service does."""
    config: Any = checkpoint.config
    tokens = tokens_of(config, checkpoint.conventions)
    side = Tokenizer(checkpoint.folder / TOKENIZER_FILE, config.vocab_size)
    limits = Limits(config.max_source_tokens, config.max_target_tokens)
    planner = Planner(limits, tokens, TokenizerPair(side, side))
    source, target = config.source_languages[0], config.target_languages[0]
    job = TranslationJob("", tuple(texts), source, target)
    return planner.plan(job).layouts


def _must_translate(task: str) -> None:
    if task != "translate":
        raise ValueError(f"a model of task '{task}' does not translate")
