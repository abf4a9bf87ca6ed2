"""Measure how far back a loss reaches: the norm of its gradient with respect to every earlier
token.

In a recurrent network the gradient is multiplied by a factor at each step (Bengio et al. 1994);
attention is one step from any token. The source and target of a translator count as one text: the
first token of the target follows the </s> of the source.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps, rc_context
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from models.batch import IGNORED_LABEL, LanguageBatch, TargetBatch, TranslationBatch
from models.checkpoint import Checkpoint
from models.configs.base import LanguageModelConfig, TranslationModelConfig
from models.contract import AnyModel
from models.data.batching import ParallelData
from models.data.corpus import read_pairs, read_text
from models.data.tokenizer import encode_all, read_tokenizer
from models.errors import InputError
from models.loading import load_module

TABLES = ("embedding", "source_embedding", "target_embedding")
LOSSES = 8  # of a translation, about


@dataclass(frozen=True)
class Amount:
    """The number of texts that are read, and the number of tokens of a text of prose."""

    texts: int
    tokens: int


@dataclass(frozen=True)
class Reach:
    """Mean norms of gradients by distance, relative to the norm at the token read last, which has
    distance 0.
    """

    name: str
    norms: list[float]

    def __str__(self) -> str:
        return f"{self.name}: " + ", ".join(f"under {s} {self._since(s)}" for s in (0.1, 0.01))

    def _since(self, share: float) -> str:
        """Return the first distance from which on all norms are less than this share."""
        end = max(distance for distance, norm in enumerate(self.norms) if norm >= share) + 1
        farthest = len(self.norms) - 1
        return f"from distance {end} on" if end <= farthest else f"at no distance to {farthest}"


def measure(checkpoint: Checkpoint, text: Path, amount: Amount) -> Reach:
    """Average over the texts of a file: prose for a language model, pairs for a translator. Raises
    InputError if the file has too little text, CheckpointError for a model that predicts no tokens.
    """
    module = load_module(checkpoint)
    all_norms = list(gradient_norms(module, _batch(checkpoint, text, amount)))
    means = [np.mean([norm for norm in row if norm is not None]) for row in zip_longest(*all_norms)]
    return Reach(checkpoint.name, [float(mean / means[0]) for mean in means])


def gradient_norms(module: AnyModel, batch: TargetBatch) -> Iterator[list[float]]:
    """Yield, for each loss, the norms of its gradient with respect to the tokens read before, the
    last one first. Of prose the last token has a loss, of translations several tokens of the
    target.
    """
    sources = [batch] if isinstance(batch, TranslationBatch) else []
    texts = [*(source.source_ids for source in sources), batch.input_ids]
    with _record_embeddings(module) as inputs:
        hidden = module(batch)
    length = batch.input_ids.shape[1]
    for position in range(0, length, max(1, length // LOSSES)) if sources else [length - 1]:
        labels = batch.labels[:, position]
        loss = cross_entropy(module.project(hidden[:, position]), labels, reduction="sum")
        gradients = torch.autograd.grad(loss, [source for _, source in inputs], retain_graph=True)
        read = zip(texts, inputs, gradients, strict=True)
        norms = [_norms(ids, embedded, gradient) for ids, (embedded, _), gradient in read]
        for row in (labels != IGNORED_LABEL).nonzero()[:, 0].tolist():
            ends = [*(int(source.source_lengths[row]) for source in sources), position + 1]
            parts = [source[row, :end] for source, end in zip(norms, ends, strict=True)]
            yield torch.cat(parts).flip(0).tolist()


def _norms(ids: Tensor, vectors: Tensor, gradient: Tensor) -> Tensor:
    """Return the norms [batch, length], also if a model has embedded the ids one position at a
    time.
    """
    norms = gradient.norm(dim=-1)
    return norms if torch.equal(ids, vectors) else norms.T


@contextmanager
def _record_embeddings(module: AnyModel) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Collect ids and their embeddings, in the order in which they are embedded."""
    embedded: list[tuple[Tensor, Tensor]] = []

    def collect(table: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        embedded.append((inputs[0], output))

    tables = [getattr(module, name) for name in TABLES if hasattr(module, name)]
    hooks = [table.register_forward_hook(collect) for table in tables]
    try:
        yield embedded
    finally:
        for hook in hooks:
            hook.remove()


def _batch(checkpoint: Checkpoint, text: Path, amount: Amount) -> TargetBatch:
    """Select texts evenly over a file. Raises InputError for other models."""
    config = checkpoint.config
    if isinstance(config, LanguageModelConfig):
        return _prose(checkpoint, text, amount.texts, min(amount.tokens, config.context_length))
    if not isinstance(config, TranslationModelConfig) or config.task != "translate":
        raise InputError(f"{checkpoint.folder} does not predict tokens from texts")
    return _pairs(checkpoint, config, text, amount.texts)


def _prose(checkpoint: Checkpoint, text: Path, number: int, length: int) -> LanguageBatch:
    [stream] = encode_all(read_tokenizer(checkpoint.tokenizer), [read_text(text)])
    starts = _spread(len(stream) - length, number, text)
    ids = torch.tensor([stream[start : start + length + 1] for start in starts])
    return LanguageBatch(ids[:, :-1], ids[:, 1:])


def _pairs(
    checkpoint: Checkpoint, config: TranslationModelConfig, text: Path, number: int
) -> TranslationBatch:
    pairs = read_pairs(text)
    tokenizers = [read_tokenizer(t) for t in (checkpoint.tokenizer, checkpoint.target_tokenizer)]
    sources = encode_all(tokenizers[0], [pair.source for pair in pairs])
    targets = encode_all(tokenizers[1], [pair.target for pair in pairs])
    fits = [
        i
        for i, (s, t) in enumerate(zip(sources, targets, strict=True))
        if len(s) < config.max_source_tokens and len(t) < config.max_target_tokens
    ]
    chosen = [fits[i] for i in _spread(len(fits), number, text)]
    data = ParallelData(sources, targets, np.ones(len(pairs)), config)
    return data.batch(np.array(chosen))


def _spread(size: int, number: int, text: Path) -> list[int]:
    """Return up to so many of the numbers 0..size-1, evenly spread."""
    if size < 1:
        raise InputError(f"{text} holds too little text")
    return sorted({int(index) for index in np.linspace(0, size - 1, number)})


# Letters stay letters, and the same figures give the same file.
STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "attendant"}
UNDATED: dict[str, Any] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
FAINTEST = 1e-6  # of what is drawn
LINES = ("-", "--", ":")


def draw(reaches: Sequence[Reach], path: Path) -> None:
    """Write a plot in the format of the path's suffix. Raises OSError."""
    with rc_context(STYLE):
        figure = Figure(figsize=(8.5, 4.5))
        axes = figure.add_subplot()
        for i, reach in enumerate(reaches):
            colour = colormaps["turbo"]((i + 0.5) / len(reaches))
            style: Any = {"color": colour, "linestyle": LINES[i % len(LINES)]}
            axes.plot(range(len(reach.norms)), reach.norms, label=reach.name, **style)
        axes.set(
            xlabel="tokens between the one read last and another",
            ylabel="gradient of the next token's loss, the nearest = 1",
            yscale="log",
        )
        norms = [norm for reach in reaches for norm in reach.norms if norm]
        axes.set_ylim(max(FAINTEST, min(norms) / 2), 2 * max(norms))
        axes.grid(alpha=0.3)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        suffix = path.suffix.lower()
        figure.savefig(
            path, format=suffix[1:], dpi=150, bbox_inches="tight", metadata=UNDATED.get(suffix)
        )
