"""Prepare the tokenizer, training data and validation data of a configuration."""

import os
import random
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from models.architectures.registry import AnyConfig
from models.configs.base import (
    EncoderConfig,
    LanguageModelConfig,
    MaskedWordHead,
    TranslationModelConfig,
)
from models.conventions import own_conventions
from models.data.augmenting import UNREAL, augment_pairs
from models.data.batching import (
    CarriedProse,
    Dataset,
    LabelData,
    MaskedProse,
    ParallelData,
    ProseData,
)
from models.data.bpe_dropout import Segmenter, VaryingData
from models.data.corpus import (
    SentencePair,
    hold_out,
    hold_out_pairs,
    known_words,
    read_documents,
    read_pairs,
)
from models.data.tokenizer import MASK_TOKEN, encode_all, load_tokenizer, train_tokenizer
from models.errors import InputError
from models.scores import add_special_tokens, label_numbers
from models.training.config import RunConfig, TrainingConfig

TOKENIZER_SAMPLE = 200_000  # texts that the tokenizer is learned from
HOLD_OUT_SEED = 0


@dataclass(frozen=True)
class TrainingData:
    """What a run needs besides the model.

    pairs: validation sentences for BLEU.
    test: pairs that the finished model is scored on.
    ending: the data of the last part of a run, in place of `train`, if the recipe has such a part.
    held_out: documents of prose that are not trained on.
    words: words that a translator sees often enough to know them.
    """

    tokenizer: Tokenizer
    train: Dataset
    dev: Dataset
    pairs: list[SentencePair]
    test: list[SentencePair] = field(default_factory=list)
    ending: Dataset | None = None
    held_out: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


def prepare(config: TrainingConfig, data: Path, tokenizer_path: Path) -> TrainingData:
    """Read and encode all data. The tokenizer is trained and saved, unless there is one."""
    if isinstance(config.model, LanguageModelConfig) or masked_words_of(config.model):
        return _prepare_prose(config, data, tokenizer_path)
    if isinstance(config.model, EncoderConfig):
        return _prepare_labels(config, data, tokenizer_path)
    return _prepare_parallel(config, data, tokenizer_path)


def _prepare_parallel(config: TrainingConfig, data: Path, tokenizer_path: Path) -> TrainingData:
    learned, dev, test = _split_pairs(config, data)
    written = [*learned, *augment_pairs(learned, config.data.augment, config.run.seed)]
    pairs = [*written, *_distilled_pairs(config, data)]
    texts = [text for p in pairs for text in (p.source, p.target)]
    tokenizer = _tokenizer(texts, config.model.vocab_size, tokenizer_path)
    train = _parallel_data(config, tokenizer, pairs, config.data.bpe_dropout)
    ending = config.data.ending
    return TrainingData(
        tokenizer,
        train.with_repeats(config.data.repeats, 1.0),
        _parallel_data(config, tokenizer, dev, 0.0).with_repeats({}, 1.0),
        _draw_scored_pairs(config.run, dev),
        test,
        train.with_repeats(ending.repeats, 0.0) if ending else None,
        words=known_words(pair for pair in written if pair.origin not in UNREAL),
    )


def _draw_scored_pairs(run: RunConfig, dev: list[SentencePair]) -> list[SentencePair]:
    """Draw the sentences for BLEU. Raises InputError if there are none of the origins."""
    pairs = [pair for pair in dev if not run.bleu_origins or pair.origin in run.bleu_origins]
    if run.bleu_origins and not pairs:
        origins = ", ".join(sorted({pair.origin for pair in dev}))
        raise InputError(f"run.bleu_origins: {run.bleu_origins}: the dev set has only {origins}")
    return random.Random(run.seed).sample(pairs, min(run.bleu_sentences, len(pairs)))


Pairs = list[SentencePair]


def _split_pairs(config: TrainingConfig, data: Path) -> tuple[Pairs, Pairs, Pairs]:
    """Read the pairs to learn from, to validate and to test with."""
    pairs = [p for name in config.data.train for p in read_pairs(data / name)]
    test = read_pairs(data / config.data.test) if config.data.test else []
    if config.data.dev:
        return pairs, read_pairs(data / config.data.dev), test
    pairs, dev, held_out = hold_out_pairs(pairs, config.data.held_out)
    return (pairs + held_out, dev, test) if test else (pairs, dev, held_out)


def _written_pairs(config: TrainingConfig, data: Path) -> list[SentencePair]:
    """Read the pairs of the files, and add augmented ones."""
    pairs = [p for name in config.data.train for p in read_pairs(data / name)]
    return [*pairs, *augment_pairs(pairs, config.data.augment, config.run.seed)]


def _distilled_pairs(config: TrainingConfig, data: Path) -> list[SentencePair]:
    """Read the pairs of a teacher, if there is one."""
    return read_pairs(data / config.data.distilled) if config.data.distilled else []


@dataclass(frozen=True)
class Encoded:
    """Pairs within a model's limits, and their ids. With a segmenter the sources are segmented anew
    in every batch.
    """

    config: TranslationModelConfig
    pairs: list[SentencePair]
    sources: list[list[int]]
    targets: list[list[int]]
    segmenter: Segmenter | None

    def with_repeats(self, repeats: dict[str, float], otherwise: float) -> ParallelData:
        """Return the data with each origin repeated so many times in an epoch."""
        often = np.array([repeats.get(pair.origin, otherwise) for pair in self.pairs])
        examples = self.sources, self.targets, often, self.config
        if self.segmenter is None:
            return ParallelData(*examples)
        return VaryingData(*examples, self.pairs, self.segmenter, self.config.max_source_tokens)


def _parallel_data(
    config: TrainingConfig, tokenizer: Tokenizer, pairs: list[SentencePair], bpe_dropout: float
) -> Encoded:
    """Encode pairs; those longer than the model's limits are left out."""
    model = config.model
    assert isinstance(model, TranslationModelConfig)
    sources = encode_all(tokenizer, [p.source for p in pairs])
    targets = encode_all(tokenizer, [p.target for p in pairs])
    short_pairs = [
        i
        for i, (s, t) in enumerate(zip(sources, targets, strict=True))
        if s and t and len(s) < model.max_source_tokens and len(t) < model.max_target_tokens
    ]
    if not short_pairs:
        limits = f"{model.max_source_tokens} and {model.max_target_tokens} tokens"
        raise InputError(f"data: of {len(pairs):,} pairs none is within the model's {limits}")
    segmenter = Segmenter(tokenizer, bpe_dropout, config.run.seed) if bpe_dropout else None
    return Encoded(
        model,
        [pairs[i] for i in short_pairs],
        [sources[i] for i in short_pairs],
        [targets[i] for i in short_pairs],
        segmenter,
    )


def _prepare_labels(config: TrainingConfig, data: Path, tokenizer_path: Path) -> TrainingData:
    pairs = [*_written_pairs(config, data), *_distilled_pairs(config, data)]
    dev, test = (
        read_pairs(data / name) if name else [] for name in (config.data.dev, config.data.test)
    )
    tokenizer = _tokenizer([p.source for p in pairs], config.model.vocab_size, tokenizer_path)
    repeats, ending = config.data.repeats, config.data.ending
    train = label_data(config.model, tokenizer, pairs)
    return TrainingData(
        tokenizer,
        train.with_repeats([repeats.get(pair.origin, 1.0) for pair in pairs]),
        label_data(config.model, tokenizer, dev),
        [],
        test,
        train.with_repeats([ending.repeats.get(pair.origin, 0.0) for pair in pairs])
        if ending
        else None,
    )


def label_data(model: AnyConfig, tokenizer: Tokenizer, pairs: list[SentencePair]) -> LabelData:
    """Encode sources, each labelled with its origin; long ones are cut. Raises InputError if an
    origin is not a label of the model.
    """
    assert isinstance(model, EncoderConfig)
    if model.task != "classify":
        kinds = '"labels" or "masked-words"'
        raise InputError(f"an encoder learns one of two tasks: model.head needs kind = {kinds}")
    labels = label_numbers(pairs, model.labels)
    ids = encode_all(tokenizer, [pair.source for pair in pairs])
    rows = add_special_tokens(ids, own_conventions(model), model.max_source_tokens)
    return LabelData(rows, labels, np.ones(len(pairs)), model)


def _prepare_prose(config: TrainingConfig, data: Path, tokenizer_path: Path) -> TrainingData:
    train, dev = split_documents(config, data)
    paragraphs = [p for d in train for p in d.split("\n")]
    head = masked_words_of(config.model)
    size, has_mask = config.model.vocab_size, head is not None
    tokenizer = _tokenizer(paragraphs, size, tokenizer_path, has_mask=has_mask)
    if head is not None and (token_id := tokenizer.token_to_id(MASK_TOKEN)) != head.mask_id:
        raise InputError(
            f"model.head.mask_id: {MASK_TOKEN} has the id {token_id}, not {head.mask_id}"
        )
    learned, checked = (_prose_data(config, tokenizer, documents) for documents in (train, dev))
    if isinstance(learned, MaskedProse) and (share := config.data.masked_share):
        learned = replace(learned, masked_share=share)
    return TrainingData(
        tokenizer,
        learned,
        checked,
        [],
        held_out=dev,
    )


def split_documents(config: TrainingConfig, data: Path) -> tuple[list[str], list[str]]:
    """Read documents of prose; return those to train on and those held out."""
    documents = [d for name in config.data.train for d in read_documents(data / name)]
    return hold_out(documents, config.data.held_out, HOLD_OUT_SEED)


def _prose_data(config: TrainingConfig, tokenizer: Tokenizer, documents: list[str]) -> Dataset:
    """Encode documents. Raises InputError if they are shorter than what a model learns from."""
    eos = config.model.eos_id
    ids = [i for ids in encode_all(tokenizer, documents) for i in (*ids, eos)]
    data = _windows(config, np.array(ids, dtype=np.int32))
    if not data.epoch(0, 0, config.run.tokens_per_batch):
        raise InputError(f"data: {len(ids):,} tokens of prose are too few for one text of a batch")
    return data


def _windows(config: TrainingConfig, stream: np.ndarray) -> Dataset:
    if isinstance(config.model, EncoderConfig):
        assert isinstance(config.model.head, MaskedWordHead)
        return MaskedProse(stream, config.model, config.model.head)
    assert isinstance(config.model, LanguageModelConfig)
    if config.data.carried_window is not None:
        return CarriedProse(stream, config.data.carried_window, config.model)
    return ProseData(stream, config.model.context_length, config.model)


def masked_words_of(model: AnyConfig) -> MaskedWordHead | None:
    """Return the head of a model that learns masked words; None of others."""
    head = model.head if isinstance(model, EncoderConfig) else None
    return head if isinstance(head, MaskedWordHead) else None


def _tokenizer(
    texts: list[str], vocab_size: int, path: Path, *, has_mask: bool = False
) -> Tokenizer:
    if path.exists():
        return load_tokenizer(path)
    sample = random.Random(HOLD_OUT_SEED).sample(texts, min(TOKENIZER_SAMPLE, len(texts)))
    tokenizer = train_tokenizer(sample, vocab_size, has_mask=has_mask)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    tokenizer.save(str(fresh))
    os.replace(fresh, path)  # a kill leaves it whole or not there
    return tokenizer
