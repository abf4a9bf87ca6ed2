"""Validates: loss per token over held-out data, BLEU of greedy translations, the curve."""

from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from sacrebleu import corpus_bleu
from tokenizers import Tokenizer
from torch.nn.functional import cross_entropy

from models.batch import IGNORED_LABEL, device_of
from models.contract import AnyModel, Translator
from models.data.batching import Dataset
from models.data.corpus import Pair
from models.data.tokenizer import encode_all
from models.decoding.greedy import translate_all
from models.training.learning import Carry


@dataclass(frozen=True)
class Validation:
    """Has `loss` in nats per target token; `bleu` is None for language models."""

    loss: float
    bleu: float | None


@torch.inference_mode()
def validate(
    module: AnyModel, tokenizer: Tokenizer, data: Dataset, pairs: list[Pair], tokens: int
) -> Validation:
    """Evaluate without dropout; the module is left in training mode."""
    module.eval()
    is_scored = isinstance(module, Translator) and pairs
    score = bleu(module, tokenizer, pairs) if is_scored else None
    result = Validation(loss(module, data, tokens), score)
    module.train()
    return result


@torch.inference_mode()
def loss(module: AnyModel, data: Dataset, tokens_per_batch: int) -> float:
    """Average the negative log-likelihood of a target token."""
    total, count, carry = 0.0, 0, Carry()
    for indices in data.epoch(0, 0, tokens_per_batch):
        batch = data.batch(indices).to(device_of(module))
        real = batch.labels != IGNORED_LABEL
        logits = module.project(carry.read(module, batch)[real]).float()
        total += float(cross_entropy(logits, batch.labels[real], reduction="sum"))
        count += batch.num_target_tokens
    return total / max(1, count)


def bleu(module: Translator, tokenizer: Tokenizer, pairs: list[Pair]) -> float:
    """Compute sacreBLEU of greedy translations of `pairs`."""
    sources = encode_all(tokenizer, [p.source for p in pairs])
    limit = min(module.config.max_target_tokens - 1, 2 * max(map(len, sources)) + 10)
    rows = translate_all(module, sources, limit, batch_size=64)
    return corpus_bleu(tokenizer.decode_batch(rows), [[p.target for p in pairs]]).score


def draw_curve(rows: list[dict], path: Path, title: str) -> None:
    """Draw training and validation loss (and BLEU) over steps."""
    figure, axis = plt.subplots(figsize=(7, 4))
    steps = [row["step"] for row in rows]
    axis.plot(steps, [row["train_loss"] for row in rows], label="train loss (smoothed labels)")
    axis.plot(steps, [row["dev_loss"] for row in rows], label="dev loss")
    axis.set(xlabel="step", ylabel="nats", title=title)
    axis.legend(loc="center right")
    if any(row["bleu"] is not None for row in rows):
        right = axis.twinx()
        right.plot(steps, [row["bleu"] for row in rows], color="tab:green", linestyle="--")
        right.set_ylabel("dev BLEU (dashed)")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
