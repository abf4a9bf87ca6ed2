"""Writes the card of a finished run: what it is, what it was trained on, how good it is."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from models.configs.base import LanguageModelConfig
from models.configs.encoder import EncoderConfig
from models.contract import Encoder, LanguageModel
from models.conventions import own_conventions
from models.data.corpus import Pair
from models.data.labels import tally
from models.data.prose import Reader, table
from models.decoding.forced import nats
from models.decoding.translation import translate
from models.evaluation.hops import draw_hops
from models.evaluation.scores import TestResult, evaluate
from models.evaluation.vectors import vectors_of
from models.loading import load_encoder, load_module
from models.storage.checkpoint import QUALITY_FILE, load_checkpoint
from models.training.arithmetic import Arithmetic
from models.training.config import TrainingConfig
from models.training.prepare import Prepared, label_data
from models.training.state import RunFolder

HOPS_FILE = "hops.png"
LONGEST_SHOWN, MOST_SHOWN = 30, 4  # tokens of a sentence, sentences


def write_card(
    config: TrainingConfig,
    prepared: Prepared,
    test: list[Pair],
    run: RunFolder,
    arithmetic: Arithmetic,
) -> None:
    """Evaluate the finished checkpoint and put `README.md`, `quality.json` and the curve by it."""
    checkpoint = load_checkpoint(run.checkpoint)
    load = load_encoder if isinstance(config.model, EncoderConfig) else load_module
    module: Any = load(checkpoint).to(arithmetic.device)
    if isinstance(config.model, EncoderConfig):
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


def _translation_scores(result: TestResult) -> str:
    return (
        f"Greedy decoding, sentence by sentence, scored per source:\n\n{result.as_table()}\n\n"
        f"{result.signatures}"
    )


def _label_quality(
    module: Encoder, prepared: Prepared, test: list[Pair], run: RunFolder
) -> tuple[dict, str]:
    """Measure how many test sentences are given the label of their origin; draw hops, if any, of
    one sentence of each label.
    """
    data = label_data(module.config, prepared.tokenizer, test)
    logits = vectors_of(module, data.rows, [[0] * len(row) for row in data.rows])
    found = tally(module.config.labels, data.labels, [int(each.argmax()) for each in logits])
    firsts = {label: row for row, label in zip(data.rows[::-1], data.labels[::-1], strict=True)}
    shown = [row for _, row in sorted(firsts.items()) if len(row) <= LONGEST_SHOWN][:MOST_SHOWN]
    has_hops = draw_hops(module, prepared.tokenizer, shown, run.checkpoint / HOPS_FILE)
    picture = f"\n\n![what each hop looks at]({HOPS_FILE})" if has_hops else ""
    return found.as_json(), found.as_markdown() + picture


def _language_model_quality(module: LanguageModel, prepared: Prepared) -> tuple[dict, str]:
    """Measure bits per byte and perplexity of the documents that were held out."""
    config = module.config
    conventions = own_conventions(config)
    reader = Reader(prepared.tokenizer, conventions, config.context_length)
    found = reader.score(
        prepared.held_out, lambda windows: nats(module, windows, conventions.prompt_prefix)
    )
    scores = f"The held-out documents: {found.as_sentence()}\n\n{table({'torch, fp32': found})}"
    return asdict(found), scores


def _card(
    config: TrainingConfig,
    scores: str,
    rows: list[dict],
    num_parameters: int,
    arithmetic: Arithmetic,
) -> str:
    card, last = config.card, rows[-1]
    shown = _shown(config.model.model_dump(exclude={"architecture", "task", "imported"}))
    run, optimizer = config.run, config.optimizer
    unit = "text" if isinstance(config.model, EncoderConfig) else "token"
    return f"""# {card.title or config.name}

{card.about.strip()}

{num_parameters / 1e6:.1f} M parameters, stored in fp16:
{", ".join(shown)}.

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


def _shown(options: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield what has a value that a reader can take in, those of sections by their full names."""
    for name, value in options.items():
        if isinstance(value, dict):
            yield from _shown(value, f"{name}.")
        elif isinstance(value, int | float | str):
            yield f"{prefix}{name} {value}"
