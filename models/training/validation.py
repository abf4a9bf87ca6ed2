"""Validation: loss per token, or masked word, on held-out data, BLEU of greedy translations, the
training curve, and the model card of a finished run.
"""

import json
import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import torch
from sacrebleu import corpus_bleu
from tokenizers import Tokenizer
from torch.nn.functional import cross_entropy

from models.batch import IGNORED_LABEL, LabelBatch, device_of
from models.checkpoint import QUALITY_FILE, load_checkpoint
from models.configs.base import EncoderConfig, LanguageModelConfig
from models.contract import AnyModel, EncoderModel, LanguageModel, TranslationModel
from models.conventions import own_conventions
from models.data.batching import Dataset
from models.data.corpus import ProseReader, SentencePair, table
from models.data.tokenizer import encode_all
from models.decoding import nats, translate, translate_all, vectors_of
from models.loading import load_encoder, load_module
from models.safetensors import Array
from models.scores import TestResult, evaluate, tally
from models.training.config import TrainingConfig
from models.training.learning import Carry
from models.training.optimizer import Arithmetic
from models.training.prepare import TrainingData, label_data, masked_words_of
from models.training.state import RunFolder

matplotlib.use("Agg")


@dataclass(frozen=True)
class Validation:
    """`loss` is in nats per target token or masked word; `bleu` is None but for translators."""

    loss: float
    bleu: float | None


@torch.inference_mode()
def validate(
    module: AnyModel, tokenizer: Tokenizer, data: Dataset, pairs: list[SentencePair], tokens: int
) -> Validation:
    """Evaluate without dropout. The module is in training mode afterwards."""
    module.eval()
    is_scored = isinstance(module, TranslationModel) and pairs
    score = bleu(module, tokenizer, pairs) if is_scored else None
    result = Validation(loss(module, data, tokens), score)
    module.train()
    return result


@torch.inference_mode()
def loss(module: AnyModel, data: Dataset, tokens_per_batch: int) -> float:
    """Return the mean negative log-likelihood of a target token."""
    total, count, carry = 0.0, 0, Carry()
    for indices in data.epoch(0, 0, tokens_per_batch):
        batch = data.batch(indices).to(device_of(module))
        real = batch.labels != IGNORED_LABEL
        logits = module.project(carry.read(module, batch)[real]).float()
        total += float(cross_entropy(logits, batch.labels[real], reduction="sum"))
        count += batch.num_target_tokens
    return total / max(1, count)


def bleu(module: TranslationModel, tokenizer: Tokenizer, pairs: list[SentencePair]) -> float:
    """Return the sacreBLEU of greedy translations of `pairs`."""
    sources = encode_all(tokenizer, [p.source for p in pairs])
    limit = min(module.config.max_target_tokens - 1, 2 * max(map(len, sources)) + 10)
    rows = translate_all(module, sources, limit, batch_size=64)
    return corpus_bleu(tokenizer.decode_batch(rows), [[p.target for p in pairs]]).score


def draw_curve(rows: list[dict], path: Path, title: str) -> None:
    """Plot training and validation loss (and BLEU) over steps."""
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


HOPS_FILE = "hops.png"
LONGEST_SHOWN, MOST_SHOWN = 30, 4  # tokens of a sentence, sentences


def write_card(
    config: TrainingConfig,
    prepared: TrainingData,
    run: RunFolder,
    arithmetic: Arithmetic,
) -> dict:
    """Evaluate the finished checkpoint and write `README.md`, `quality.json` and the curve beside
    it. Return what `quality.json` has.
    """
    checkpoint, test = load_checkpoint(run.checkpoint), prepared.test
    load = load_encoder if isinstance(config.model, EncoderConfig) else load_module
    module: Any = load(checkpoint).to(arithmetic.device)
    if masked_words_of(config.model):
        quality, scores = _masked_quality(module, prepared, config.run.tokens_per_batch)
    elif isinstance(config.model, EncoderConfig):
        quality, scores = _label_quality(module, prepared, test, run)
    elif isinstance(config.model, LanguageModelConfig):
        quality, scores = _language_model_quality(module, prepared)
    else:
        result = evaluate(test, lambda texts: translate(module, prepared.tokenizer, texts))
        quality, scores = result.as_json(), _translation_scores(result)
    (run.checkpoint / QUALITY_FILE).write_text(json.dumps(quality, indent=2) + "\n")
    shutil.copyfile(run.curve, run.checkpoint / run.curve.name)
    size = sum(parameter.numel() for parameter in module.parameters())
    text = _card(config, scores, run.rows(), size, arithmetic)
    (run.checkpoint / "README.md").write_text(text, encoding="utf-8")
    return quality


def _translation_scores(result: TestResult) -> str:
    return (
        f"Greedy decoding, sentence by sentence, scored per source:\n\n{result.as_table()}\n\n"
        f"{result.signatures}"
    )


def _label_quality(
    module: EncoderModel, prepared: TrainingData, test: list[SentencePair], run: RunFolder
) -> tuple[dict, str]:
    """Count how many test sentences get the label of their origin; plot the hops of one sentence of
    each label, if the model has hops.
    """
    data = label_data(module.config, prepared.tokenizer, test)
    logits = vectors_of(module, data.rows, [[0] * len(row) for row in data.rows])
    result = tally(
        module.config.labels, data.labels, [int(row_logits.argmax()) for row_logits in logits]
    )
    firsts = {label: row for row, label in zip(data.rows[::-1], data.labels[::-1], strict=True)}
    rows = [row for _, row in sorted(firsts.items()) if len(row) <= LONGEST_SHOWN][:MOST_SHOWN]
    has_hops = draw_hops(module, prepared.tokenizer, rows, run.checkpoint / HOPS_FILE)
    picture = f"\n\n![what each hop looks at]({HOPS_FILE})" if has_hops else ""
    return result.as_json(), result.as_markdown() + picture


def _language_model_quality(module: LanguageModel, prepared: TrainingData) -> tuple[dict, str]:
    """Return bits per byte and perplexity of the held-out documents."""
    config = module.config
    conventions = own_conventions(config)
    reader = ProseReader(prepared.tokenizer, conventions, config.context_length)
    score = reader.score(
        prepared.held_out, lambda windows: nats(module, windows, conventions.prompt_prefix)
    )
    scores = f"The held-out documents: {score.as_sentence()}\n\n{table({'torch, fp32': score})}"
    return asdict(score), scores


@torch.inference_mode()
def _masked_quality(module: EncoderModel, prepared: TrainingData, tokens: int) -> tuple[dict, str]:
    """Return bits per masked word of the held-out documents, and how many words are guessed."""
    nats, right, count = 0.0, 0, 0
    for indices in prepared.dev.epoch(0, 0, tokens):
        batch = prepared.dev.batch(indices).to(device_of(module))
        assert isinstance(batch, LabelBatch)
        real = batch.labels != IGNORED_LABEL
        logits, labels = module.project(module(batch)[real]).float(), batch.labels[real]
        nats += float(cross_entropy(logits, labels, reduction="sum"))
        right += int((logits.argmax(-1) == labels).sum())
        count += len(labels)
    documents, bits = len(prepared.held_out), nats / math.log(2) / max(1, count)
    accuracy = right / max(1, count)
    figures = {"documents": documents, "masked_words": count}
    scores = (
        f"Of the {documents} held-out documents 15 % of the words (tokens) are to be guessed,"
        f" {count:,}: 80 % of them masked, 10 % replaced by others, 10 % left.\n\n"
        f"| | bits per masked word | guessed |\n|---|---:|---:|\n"
        f"| torch, fp32 | {bits:.3f} | {accuracy:.1%} |"
    )
    return {
        **figures,
        "bits_per_masked_word": round(bits, 4),
        "accuracy": round(accuracy, 4),
    }, scores


def _card(
    config: TrainingConfig,
    scores: str,
    rows: list[dict],
    num_parameters: int,
    arithmetic: Arithmetic,
) -> str:
    card, last = config.card, rows[-1]
    lines = _list_options(
        config.model.model_dump(exclude={"architecture", "domain", "task", "imported"})
    )
    run, optimizer = config.run, config.optimizer
    unit = "text" if isinstance(config.model, EncoderConfig) else "token"
    unit = "masked word" if masked_words_of(config.model) else unit
    return f"""# {card.title or config.name}

{card.about.strip()}

{num_parameters / 1e6:.1f} M parameters, stored in fp16:
{", ".join(lines)}.

## Data

{card.data.strip()}

## Quality

{scores}

## Training

`attendant train models/recipes/{config.name}.toml`: {last["step"]:,} steps of up to
{run.tokens_per_batch:,} tokens in {last["minutes"]:.0f} minutes ({arithmetic.name} on
{arithmetic.place}), {optimizer.name}, learning rate {optimizer.learning_rate:g}, label
smoothing {run.label_smoothing:g}. Loss on held-out text: {last["dev_loss"]} nats a {unit}.

{card.training.strip()}

![loss curve](curve.png)

## Licence

{card.licence.strip()}
"""


def _list_options(options: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the options with a value that fits in a table; those of sections by their full
    names.
    """
    for name, value in options.items():
        if isinstance(value, dict):
            yield from _list_options(value, f"{name}.")
        elif isinstance(value, int | float | str):
            yield f"{prefix}{name} {value}"


INCHES = (0.42, 0.32)  # a token's column, a hop's row


MARGINS = (1.5, 1.1)


DOTS_PER_INCH = 90


def draw_hops(
    model: EncoderModel, tokenizer: Tokenizer, rows: Sequence[Sequence[int]], path: Path
) -> bool:
    """Draw one picture for each text, complete with its special tokens, below the other; a row for
    each hop, a column for each token. Returns whether the model has any hops.
    """
    weights = [hops_of(model, row) for row in rows]
    rows_with_hops = [
        (row, hops) for row, hops in zip(rows, weights, strict=True) if hops is not None
    ]
    if not rows_with_hops:
        return False
    width = MARGINS[0] + INCHES[0] * max(map(len, rows))
    height = sum(MARGINS[1] + INCHES[1] * len(hops) for _, hops in rows_with_hops)
    figure, axes = plt.subplots(len(rows_with_hops), 1, figsize=(width, height), squeeze=False)
    for [axis], (row, hops) in zip(axes, rows_with_hops, strict=True):
        axis.imshow(hops, cmap="Greys", vmin=0, aspect="auto")
        tokens = [_token_text(tokenizer, token_id) for token_id in row]
        axis.set_xticks(range(len(row)), tokens, rotation=60, ha="right", fontsize=8)
        axis.set_yticks(range(len(hops)), [f"hop {n + 1}" for n in range(len(hops))], fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=DOTS_PER_INCH)
    plt.close(figure)
    return True


@torch.inference_mode()
def hops_of(model: EncoderModel, row: Sequence[int]) -> Array | None:
    """Compute the weights [hops, tokens] of one text; None of a model without hops."""
    device = device_of(model)
    ids, lengths = torch.tensor([row], device=device), torch.tensor([len(row)], device=device)
    weights = model.hops(ids, lengths)
    return None if weights is None else weights[0].float().cpu().numpy()


def _token_text(tokenizer: Tokenizer, token_id: int) -> str:
    """Write a token as it stands in a text; a special one by its name."""
    return tokenizer.decode([token_id]).strip() or tokenizer.id_to_token(token_id) or "?"
