"""From a training configuration to tokenizer, training data and validation data."""

import os
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from models.configs.base import LanguageModelConfig
from models.data.batching import Dataset, ParallelData, ProseData
from models.data.corpus import Pair, hold_out, read_documents, read_pairs
from models.data.tokenizer import encode_all, load_tokenizer, train_tokenizer
from models.training.config import TrainingConfig

TOKENIZER_SAMPLE = 200_000  # texts that the tokenizer is learned from
HOLD_OUT_SEED = 0


@dataclass(frozen=True)
class Prepared:
    """What a run needs besides the model; `pairs` are validation sentences for BLEU."""

    tokenizer: Tokenizer
    train: Dataset
    dev: Dataset
    pairs: list[Pair]


def prepare(config: TrainingConfig, data: Path, tokenizer_path: Path) -> Prepared:
    """Read and encode all data; learns and saves the tokenizer unless it is there already."""
    if isinstance(config.model, LanguageModelConfig):
        return _prepare_prose(config, data, tokenizer_path)
    return _prepare_parallel(config, data, tokenizer_path)


def _prepare_parallel(config: TrainingConfig, data: Path, tokenizer_path: Path) -> Prepared:
    pairs = [p for name in config.data.train for p in read_pairs(data / name)]
    dev = read_pairs(data / config.data.dev) if config.data.dev else []
    texts = [text for p in pairs for text in (p.source, p.target)]
    tokenizer = _tokenizer(texts, config.model.vocab_size, tokenizer_path)
    repeats = [config.data.repeats.get(p.origin, 1.0) for p in pairs]
    chosen = random.Random(config.run.seed).sample(dev, min(config.run.bleu_sentences, len(dev)))
    return Prepared(
        tokenizer,
        _parallel_data(config, tokenizer, pairs, np.array(repeats)),
        _parallel_data(config, tokenizer, dev, np.ones(len(dev))),
        chosen,
    )


def _parallel_data(
    config: TrainingConfig, tokenizer: Tokenizer, pairs: list[Pair], repeats: np.ndarray
) -> ParallelData:
    """Encode pairs; those longer than the model's limits are left out."""
    assert not isinstance(config.model, LanguageModelConfig)
    sources = encode_all(tokenizer, [p.source for p in pairs])
    targets = encode_all(tokenizer, [p.target for p in pairs])
    limits = config.model.max_source_tokens, config.model.max_target_tokens
    kept = [
        i
        for i, (s, t) in enumerate(zip(sources, targets, strict=True))
        if s and t and len(s) < limits[0] and len(t) < limits[1]
    ]
    return ParallelData(
        [sources[i] for i in kept], [targets[i] for i in kept], repeats[kept], config.model
    )


def _prepare_prose(config: TrainingConfig, data: Path, tokenizer_path: Path) -> Prepared:
    documents = [d for name in config.data.train for d in read_documents(data / name)]
    train, dev = hold_out(documents, config.data.held_out, HOLD_OUT_SEED)
    paragraphs = [p for d in train for p in d.split("\n")]
    tokenizer = _tokenizer(paragraphs, config.model.vocab_size, tokenizer_path)
    return Prepared(
        tokenizer,
        _prose_data(config, tokenizer, train),
        _prose_data(config, tokenizer, dev),
        [],
    )


def _prose_data(config: TrainingConfig, tokenizer: Tokenizer, documents: list[str]) -> ProseData:
    assert isinstance(config.model, LanguageModelConfig)
    eos = config.model.eos_id
    stream = [i for ids in encode_all(tokenizer, documents) for i in (*ids, eos)]
    return ProseData(np.array(stream, dtype=np.int32), config.model.context_length, config.model)


def _tokenizer(texts: list[str], vocab_size: int, path: Path) -> Tokenizer:
    if path.exists():
        return load_tokenizer(path)
    sample = random.Random(HOLD_OUT_SEED).sample(texts, min(TOKENIZER_SAMPLE, len(texts)))
    tokenizer = train_tokenizer(sample, vocab_size)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    tokenizer.save(str(fresh))
    os.replace(fresh, path)  # a kill leaves it whole or not there
    return tokenizer
