"""Toy tasks that a small model learns in a minute, and the loop that teaches it.

Texts are read byte by byte, so that a model of one task needs no tokenizer of its own.
"""

import random
import time
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from models.architectures.registry import parse_config
from models.batch import TranslationBatch
from models.checkpoint import save_checkpoint
from models.configs.base import SpecialTokens
from models.contract import AnyModel, TranslationModel
from models.data.batching import ParallelData
from models.decoding import translate_all
from models.loading import build

Pair = tuple[str, str]
Task = Callable[[random.Random], Pair]
DIGITS = "0123456789"
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
)


def reverse(shortest: int, longest: int) -> Task:
    """Make a task: digits, and the same from last to first."""

    def draw(rng: random.Random) -> Pair:
        text = "".join(rng.choices(DIGITS, k=rng.randint(shortest, longest)))
        return text, text[::-1]

    return draw


def copy(shortest: int, longest: int) -> Task:
    """Make a task: digits, and the same again."""

    def draw(rng: random.Random) -> Pair:
        text = "".join(rng.choices(DIGITS, k=rng.randint(shortest, longest)))
        return text, text

    return draw


def dates(rng: random.Random) -> Pair:
    """Draw a day as people write it, and as ISO 8601 does."""
    day = date(1900, 1, 1) + timedelta(days=rng.randrange(73_000))
    month = MONTHS[day.month - 1]
    written = (
        f"{day.day} {month} {day.year}",
        f"{month} {day.day}, {day.year}",
        f"{month[:3].lower()} {day.day} {day.year}",
        f"{day.day:02d}/{day.month:02d}/{day.year}",
    )
    return rng.choice(written), day.isoformat()


def byte_tokenizer() -> Tokenizer:
    """Make a tokenizer whose tokens are the 256 bytes, behind three special ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ("<pad>", "<s>", "</s>")
    vocabulary = {token: i for i, token in enumerate([*special, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(special))
    return tokenizer


TOKENIZER = byte_tokenizer()


def ids_of(text: str) -> list[int]:
    return list(TOKENIZER.encode(text).ids)


def model_of(architecture: str, seed: int = 1, **options: Any) -> TranslationModel:
    """Make a translation model with fresh weights; options as in a recipe's section [model]."""
    torch.manual_seed(seed)
    sizes = {"vocab_size": TOKENIZER.get_vocab_size(), "dropout": 0.0, **options}
    model = build(parse_config({"architecture": architecture, **sizes}))
    assert isinstance(model, TranslationModel)
    return model


def batch_of(sources: Sequence[str], targets: Sequence[str]) -> TranslationBatch:
    """Make a batch of these texts and their answers."""
    read, written = ([ids_of(text) for text in texts] for texts in (sources, targets))
    rows = len(sources)
    return ParallelData(read, written, np.ones(rows), SpecialTokens()).batch(np.arange(rows))


def examples(task: Task, count: int, seed: int) -> tuple[list[str], list[str]]:
    """Draw sources and targets."""
    rng = random.Random(seed)
    sources, targets = zip(*(task(rng) for _ in range(count)), strict=True)
    return list(sources), list(targets)


def train(
    model: AnyModel, task: Task, steps: int, rows: int = 64, rate: float = 3e-3, seed: int = 1
) -> list[float]:
    """Teach a task by AdamW with warm-up and linear decay; return the loss of each step, in nats a
    token.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98))
    warm_up = max(1, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm_up, (steps - step) / steps)
    )
    losses = []
    started = time.perf_counter()
    for step in (bar := tqdm(range(steps), unit="step", leave=False, mininterval=1.0)):
        batch = batch_of(*examples(task, rows, seed + step))
        logits = model.project(model(batch))
        loss = cross_entropy(logits.flatten(0, 1), batch.labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        bar.set_postfix_str(f"loss {losses[-1]:.3f}", refresh=False)
    seconds = time.perf_counter() - started
    print(f"{type(model).__name__}: {steps} steps in {seconds:.0f} s, loss {losses[-1]:.3f}")
    return losses


def answers(model: TranslationModel, sources: Sequence[str]) -> list[str]:
    """Let a model translate, greedily."""
    model.eval()
    longest = max(map(len, sources)) + 4  # no answer of these tasks is longer
    found = translate_all(model, [ids_of(text) for text in sources], longest, batch_size=64)
    model.train()
    return [TOKENIZER.decode(ids) for ids in found]


def accuracy(model: TranslationModel, task: Task, count: int = 100, seed: int = -1) -> float:
    """Tell which share of new examples is answered without a mistake."""
    sources, targets = examples(task, count, seed)
    found = answers(model, sources)
    return sum(a == b for a, b in zip(found, targets, strict=True)) / count


def save(model: TranslationModel, folder: Path) -> Path:
    """Write a checkpoint folder, as `attendant export` takes it."""
    weights = {name: each.detach().numpy() for name, each in model.state_dict().items()}
    save_checkpoint(folder, model.config, weights, TOKENIZER.to_str())
    return folder
