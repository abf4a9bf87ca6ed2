"""Functions that score checkpoints and bundles: labels, bits of prose and translations; and corpora
of translations for other models to learn from.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU
from tqdm import tqdm

from export.bundling.running import TEXTS_AT_ONCE, GraphRows, Ids, TextGraph
from export.bundling.writer import list_special_tokens
from models.checkpoint import Checkpoint, load_checkpoint
from models.configs.base import EncoderConfig
from models.data.corpus import Nats, ProseReader, ProseScore, ProseWindow, SentencePair, read_pairs
from models.data.tokenizer import encode_all, load_tokenizer, read_tokenizer
from models.errors import InputError
from models.scores import LabelResult, add_special_tokens, label_numbers, tally
from serving.bundle.manifest import LOGITS, TOKENIZER_FILE, Limits
from serving.bundle.opening import Bundle, open_bundle
from serving.engine.config import EngineConfig
from serving.engine.runtime.machine import available_cpus
from serving.pipelines.cards import ModelCard
from serving.pipelines.decoding import resolve_decoding
from serving.pipelines.loading import FILE_SLOTS, open_model
from serving.pipelines.routing import find_translator
from serving.pipelines.streams import in_order
from serving.pipelines.translation.job import TranslationJob
from serving.pipelines.translation.segmenting import TextSegmenter
from serving.pipelines.translation.tokenizer_pair import TokenizerPair
from serving.text.sentences import TextLayout
from serving.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from models.scores import Translate


def score_labels(model: Path, pairs: Sequence[SentencePair]) -> LabelResult:
    """Label sources, whose own labels are their origins. Raises InputError for one that is no label
    of the model, CheckpointError and BundleError.
    """
    if (model / "bundle.json").exists():
        return _bundle_labels(open_bundle(model), pairs)
    return _checkpoint_labels(model, pairs)


def _bundle_labels(bundle: Bundle, pairs: Sequence[SentencePair]) -> LabelResult:
    manifest = bundle.manifest
    assert manifest.encoder is not None  # its task is to classify
    references = label_numbers(pairs, manifest.encoder.labels)
    ids = encode_all(load_tokenizer(bundle.folder / TOKENIZER_FILE), [p.source for p in pairs])
    rows = add_special_tokens(ids, manifest.tokens, manifest.limits.max_source_tokens or 0)
    parts = [rows[start : start + TEXTS_AT_ONCE] for start in range(0, len(rows), TEXTS_AT_ONCE)]
    graph = TextGraph(bundle)
    logits = [graph.run(part, _first_segments(part))[LOGITS] for part in parts]
    predictions = [number for batch in logits for number in batch.argmax(axis=1).tolist()]
    return tally(manifest.encoder.labels, references, predictions)


def _checkpoint_labels(folder: Path, pairs: Sequence[SentencePair]) -> LabelResult:
    from models.decoding import vectors_of
    from models.loading import load_encoder

    checkpoint = load_checkpoint(folder)
    config = checkpoint.config
    assert isinstance(config, EncoderConfig)
    references = label_numbers(pairs, config.labels)
    ids = encode_all(read_tokenizer(checkpoint.tokenizer), [pair.source for pair in pairs])
    rows = add_special_tokens(ids, checkpoint.conventions, config.max_source_tokens)
    logits = vectors_of(load_encoder(checkpoint), rows, _first_segments(rows))
    return tally(config.labels, references, [int(row.argmax()) for row in logits])


def _first_segments(rows: Ids) -> Ids:
    return [[0] * len(row) for row in rows]


WINDOWS_AT_ONCE = 32  # windows that are read side by side

ScoreProse = Callable[[list[str]], ProseScore]


def prose_scorer(folder: Path) -> ScoreProse:
    """Open the checkpoint or the bundle in `folder`. Raises CheckpointError or BundleError."""
    if (folder / "bundle.json").exists():
        return _bundle_prose_scorer(open_bundle(folder))
    return _checkpoint_prose_scorer(folder)


def _bundle_prose_scorer(bundle: Bundle) -> ScoreProse:
    manifest = bundle.manifest
    tokenizer = load_tokenizer(bundle.folder / TOKENIZER_FILE)
    reader = ProseReader(tokenizer, manifest.tokens, manifest.limits.max_target_tokens)
    nats = bundle_nats(bundle)
    return lambda documents: reader.score(documents, nats)


def bundle_nats(bundle: Bundle) -> Nats:
    """Return the negative log-likelihoods of windows, computed by a bundle's step graph."""
    prefix = list(bundle.manifest.tokens.prompt_prefix)
    open_model: dict[int, GraphRows] = {}

    def rows_of(size: int) -> GraphRows:
        if size not in open_model:
            open_model[size] = GraphRows(bundle, [[]] * size, threads=available_cpus())
        open_model[size].begin_anew()
        return open_model[size]

    def nats(windows: Sequence[ProseWindow]) -> NDArray[np.float64]:
        starts = range(0, len(windows), WINDOWS_AT_ONCE)
        parts = [windows[start : start + WINDOWS_AT_ONCE] for start in starts]
        with tqdm(parts, desc="reading", unit="windows", leave=False, disable=None) as bar:
            return np.concatenate([_read_windows(rows_of(len(part)), prefix, part) for part in bar])

    return nats


def _read_windows(
    rows: GraphRows, prefix: list[int], windows: Sequence[ProseWindow]
) -> NDArray[np.float64]:
    """Read windows, alike, side by side and token by token: graphs take several tokens at once of
    one row alone, and of recurrent models never.
    """
    every, lost = np.arange(len(windows)), []
    columns = [[token] * len(windows) for token in prefix]
    columns += map(list, zip(*(window.token_ids for window in windows), strict=True))
    first = len(prefix) + windows[0].num_known
    for place, (column, following) in enumerate(pairwise(columns), 1):
        logp = rows.read([[token] for token in column])
        if place >= first:
            lost.append(-logp[every, following].astype(np.float64))
    return np.stack(lost, 1)


def _checkpoint_prose_scorer(folder: Path) -> ScoreProse:
    from models.decoding import nats
    from models.loading import load_module

    checkpoint = load_checkpoint(folder)
    module, tokenizer = load_module(checkpoint), read_tokenizer(checkpoint.tokenizer)
    config: Any = checkpoint.config
    conventions = checkpoint.conventions
    reader = ProseReader(tokenizer, conventions, config.context_length)
    return lambda documents: reader.score(
        documents, lambda windows: nats(module, windows, conventions.prompt_prefix)
    )


def translator(
    folder: Path,
    num_beams: int | None = None,
    protects: bool = False,
    languages: tuple[str, str] | None = None,
) -> "Translate":
    """Open the checkpoint or the bundle in `folder`. Without `num_beams` a bundle decodes as its
    makers recommend, all else greedily.

    protects: what must not change reaches the translation as it is, and capitals are read as small
        letters, as services do by default.
    languages: a bundle's codes; by default its first ones.

    Raises CheckpointError or BundleError, InputError for a language model, or for a checkpoint that
    is to protect: only what serves a bundle does.
    """
    if (folder / "bundle.json").exists():
        return _bundle_translator(folder, num_beams, protects, languages)
    if protects:
        raise InputError(f"{folder} is a checkpoint; only bundles are served, and protect")
    return _checkpoint_translator(folder, num_beams)


def job_of(
    folder: Path,
    num_beams: int | None,
    num_hypotheses: int = 1,
    languages: tuple[str, str] | None = None,
) -> TranslationJob:
    """Make a job of no texts for the bundle in `folder`, decoded as `translator` says. Raises
    BundleError, InputError for what does not translate.
    """
    card = ModelCard.from_manifest(open_bundle(folder).manifest)
    _must_translate(card.task)
    parameters = {} if num_beams is None else {"num_beams": num_beams}
    first = card.source_languages[0]
    source, target = languages or (first, card.targets_of(first)[0])
    return TranslationJob(
        "", (), source, target, resolve_decoding(parameters, card.generation, num_hypotheses)
    )


def _bundle_translator(
    folder: Path, num_beams: int | None, protects: bool, languages: tuple[str, str] | None
) -> "Translate":
    job = replace(job_of(folder, num_beams, languages=languages), protection=protects)
    return lambda texts: asyncio.run(_translate_texts(folder, job, texts))


async def _translate_texts(folder: Path, job: TranslationJob, texts: list[str]) -> list[str]:
    """Translate each text as a job of its own, as `attendant translate` does with a line."""
    config = EngineConfig(max_waiting=None)
    async with open_model(folder, config) as catalog:
        [card] = catalog.local_cards
        model = await find_translator(catalog, card.name, job.source, job.target)

        async def work(numbered: tuple[int, str]) -> str:
            number, text = numbered
            text_job = replace(job, request_id=str(number), texts=(text,))
            return (await model.run(text_job)).texts[0]

        translations: list[str] = []
        with tqdm(total=len(texts), desc="decoding", unit="text", leave=False, disable=None) as bar:
            async for text in in_order(work, enumerate(texts), config.slots * 8):
                translations.append(text)
                bar.update()
        return translations


def _checkpoint_translator(folder: Path, num_beams: int | None) -> "Translate":
    from models.decoding import translate, translate_by_beams
    from models.loading import load_module

    checkpoint = load_checkpoint(folder)
    _must_translate(checkpoint.config.task)
    module, tokenizer = load_module(checkpoint), read_tokenizer(checkpoint.tokenizer)

    def translated(texts: list[str]) -> list[str]:
        layouts = _layouts(checkpoint, texts)
        segments = [segment for layout in layouts for segment in layout.segments]
        if num_beams is None:
            segment_translations = translate(module, tokenizer, segments)
        else:
            segment_translations = translate_by_beams(module, tokenizer, segments, num_beams)
        rest = (text.strip() for text in segment_translations)
        return [layout.fill(list(islice(rest, len(layout.segments)))) for layout in layouts]

    return translated


def _layouts(checkpoint: Checkpoint, texts: list[str]) -> tuple[TextLayout, ...]:
    """Split the texts into sentences, as the service does."""
    config: Any = checkpoint.config
    tokens = list_special_tokens(config, checkpoint.conventions)
    side = Tokenizer(checkpoint.folder / TOKENIZER_FILE, config.vocab_size)
    limits = Limits(config.max_source_tokens, config.max_target_tokens)
    segmenter = TextSegmenter(limits, tokens, TokenizerPair(side, side))
    source, target = config.source_languages[0], config.target_languages[0]
    job = TranslationJob("", tuple(texts), source, target)
    return segmenter.plan(job).layouts


def _must_translate(task: str) -> None:
    if task != "translate":
        raise InputError(f"a model of task '{task}' does not translate")


async def distil_corpus(bundle: Path, path: Path, output: Path, num_beams: int) -> None:
    """Append to `output`, for each pair, the translation that is nearest to the reference."""
    bleu = BLEU(effective_order=True)
    pairs = read_pairs(path)
    done = _lines_done(output, pairs)
    with (
        output.open("a", encoding="utf-8") as file,
        tqdm(total=len(pairs), initial=done, unit=" pairs", disable=None) as bar,
    ):
        async for pair, texts in beams(bundle, pairs[done:], num_beams):
            nearest = max(texts, key=lambda text: bleu.sentence_score(text, [pair.target]).score)
            file.write(f"{_beginning(pair)}{nearest}\n")
            bar.update()


async def beams(
    bundle: Path, pairs: Sequence[SentencePair], num_beams: int
) -> AsyncIterator[tuple[SentencePair, list[str]]]:
    """Yield each pair with the translations of its source, the likeliest first.

    Raises BundleError, and InputError for a model that does not translate.
    """
    config = EngineConfig(slots=FILE_SLOTS, max_waiting=None)
    job = replace(job_of(bundle, num_beams, num_beams), num_alternatives=num_beams - 1)
    async with open_model(bundle, config) as catalog:
        [card] = catalog.local_cards
        model = await find_translator(catalog, card.name, job.source, job.target)

        async def work(numbered: tuple[int, SentencePair]) -> tuple[SentencePair, list[str]]:
            number, pair = numbered
            translation = await model.run(
                replace(job, request_id=str(number), texts=(pair.source,))
            )
            [renderings] = translation.renderings
            return pair, [rendering.text.strip() for rendering in renderings]

        async for candidates in in_order(work, enumerate(pairs), FILE_SLOTS * 8):
            yield candidates


def _lines_done(output: Path, pairs: Sequence[SentencePair]) -> int:
    """Return the number of complete lines of `output`, and cut off what follows them. Raises
    InputError if they are not of these pairs.
    """
    if not output.exists():
        return 0
    with output.open("r+b") as file:
        *whole, _ = file.read().split(b"\n")
        matches = zip(whole, map(_beginning, pairs), strict=False)
        if len(whole) > len(pairs) or not all(o.startswith(k.encode()) for o, k in matches):
            raise InputError(f"{output} has lines of other pairs; name another file with -o")
        file.truncate(sum(len(line) + 1 for line in whole))
    return len(whole)


def _beginning(pair: SentencePair) -> str:
    return f"{pair.origin}\t{pair.source}\t"
