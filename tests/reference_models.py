"""Tiny random models whose outputs end by </s> now and then, for comparing searches."""

from pathlib import Path
from typing import Any

from models.architectures.registry import config_class
from models.checkpoint import Checkpoint
from models.configs.base import LanguageModelConfig
from tests.tiny import tiny_checkpoint

EOS_ID = 2
SOURCES = [[40, 41, 42, 43, 44, 45], [100, 7, 9, 250], [12] * 3 + [77] * 9]
PROMPTS = [[7, 8, 9], [200], [30, 31, 30, 31, 30]]
SEEDS = {"transformer": 2, "bahdanau": 15, "recurrent-lm": 15}  # else too rarely or too often


def is_language_model(family: str) -> bool:
    return issubclass(config_class(family), LanguageModelConfig)


def ending_checkpoint(family: str, folder: Path, **changes: Any) -> Checkpoint:
    """Its logits of </s> are three times as large as drawn: often the best, often the worst."""
    checkpoint = tiny_checkpoint(family, folder, SEEDS.get(family, 0), **changes)
    checkpoint.weights["embedding.weight"][EOS_ID] *= 3
    return checkpoint


def examples(family: str) -> list[tuple[list[int] | None, list[int]]]:
    """Sources (without </s>) and prompts (after <s>)."""
    if is_language_model(family):
        return [(None, prompt) for prompt in PROMPTS]
    return list(zip(SOURCES, [[], [], [40, 41]], strict=True))
