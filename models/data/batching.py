"""Batches by token budget: parallel and labelled examples ordered by length, prose cut into
windows.

The batches of an epoch depend on (seed, epoch) alone, so that a resumed run continues with the
batches that it would have had.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from models.batch import (
    IGNORED_LABEL,
    FollowingBatch,
    LabelBatch,
    LanguageBatch,
    TargetBatch,
    TranslationBatch,
)
from models.configs.base import EncoderConfig, MaskedWordHead, SpecialTokens
from models.conventions import AddedTokens, Conventions

LENGTH_NOISE = 0.05  # neighbours in length are mixed, so batches differ from epoch to epoch
BUCKET_GROWTH = 1.1  # of a bucket's target lengths: wider ones pad targets, narrower ones sources


class Dataset(Protocol):
    """The interface of training and validation data."""

    def epoch(self, seed: int, epoch: int, tokens_per_batch: int) -> list[np.ndarray]: ...

    def batch(self, indices: np.ndarray) -> TargetBatch: ...


@dataclass(frozen=True)
class ParallelData:
    """Source and target ids. Example i occurs `repeats[i]` times in an epoch, on average.

    added: the tokens that stand before and after texts; None: those of models trained here.
    """

    sources: list[list[int]]
    targets: list[list[int]]
    repeats: np.ndarray
    tokens: SpecialTokens
    added: AddedTokens | None = field(default=None, kw_only=True)

    def epoch(self, seed: int, epoch: int, tokens_per_batch: int) -> list[np.ndarray]:
        """Draw the batches of one epoch, as arrays of example indices; each side of a batch has at
        most `tokens_per_batch` tokens with padding.
        """
        rng = np.random.default_rng([seed, epoch])
        chosen = _repeat_indices(self.repeats, rng)
        lengths = np.array([[len(self.sources[i]), len(self.targets[i])] for i in chosen]) + 1
        order = _by_both_lengths(lengths, rng)
        batches = _fill(chosen[order], lengths[order].max(axis=1), tokens_per_batch)
        return [batches[i] for i in rng.permutation(len(batches))]

    def batch(self, indices: np.ndarray) -> TranslationBatch:
        pad, added = self.tokens.pad_id, self.added or _own_tokens(self.tokens)
        sources = [[*added.source_prefix, *self.sources[i], *added.source_suffix] for i in indices]
        ignored = [IGNORED_LABEL] * (len(added.prompt_prefix) - 1)  # is not predicted
        return TranslationBatch(
            pad_rows([[*added.prompt_prefix, *self.targets[i]] for i in indices], pad),
            pad_rows([[*ignored, *self.targets[i], added.stop[0]] for i in indices], IGNORED_LABEL),
            pad_rows(sources, pad),
            torch.tensor([len(s) for s in sources]),
        )


def _own_tokens(tokens: SpecialTokens) -> Conventions:
    return Conventions((), (tokens.eos_id,), (tokens.bos_id,), (tokens.eos_id,))


@dataclass(frozen=True)
class ProseData:
    """One stream of token ids, cut into windows of `context_length`."""

    stream: np.ndarray
    context_length: int
    tokens: SpecialTokens

    def epoch(self, seed: int, epoch: int, tokens_per_batch: int) -> list[np.ndarray]:
        """Draw the batches of one epoch, as arrays of window starts. The stream is cut at other
        places in every epoch.
        """
        rng = np.random.default_rng([seed, epoch])
        offset = int(rng.integers(self.context_length))
        starts = np.arange(offset, len(self.stream) - self.context_length, self.context_length)
        starts = rng.permutation(starts)
        size = max(1, tokens_per_batch // self.context_length)
        return [starts[i : i + size] for i in range(0, len(starts), size)]

    def batch(self, indices: np.ndarray) -> LanguageBatch:
        labels = np.stack([self.stream[i : i + self.context_length] for i in indices])
        labels_tensor = torch.from_numpy(labels.astype(np.int64))
        first = torch.full((len(indices), 1), self.tokens.bos_id)
        return LanguageBatch(torch.cat([first, labels_tensor[:, :-1]], 1), labels_tensor)


MASKED, REPLACED = 0.8, 0.9  # of the words to predict 80 % are masked, 10 % replaced, 10 % kept


@dataclass(frozen=True)
class MaskedProse:
    """A stream of token ids, cut into texts as long as the model reads. Of each some words are to
    be predicted, most of them masked (Devlin et al. 2019, 3.1), other ones in each epoch.

    masked_share: the part of the words that is to be predicted.
    """

    stream: np.ndarray
    config: EncoderConfig
    head: MaskedWordHead
    masked_share: float = 0.15

    def epoch(self, seed: int, epoch: int, tokens_per_batch: int) -> list[np.ndarray]:
        """Return, for each batch, [rows, 3]: the start of each text, `seed` and `epoch`."""
        length = self.config.max_source_tokens - 2  # <s> and </s> come around
        size = max(1, tokens_per_batch // self.config.max_source_tokens)
        batches = ProseData(self.stream, length, self.config).epoch(seed, epoch, size * length)
        return [np.stack(np.broadcast_arrays(starts, seed, epoch), axis=1) for starts in batches]

    def batch(self, indices: np.ndarray) -> LabelBatch:
        config, length = self.config, self.config.max_source_tokens - 2
        words = np.stack([self.stream[start : start + length] for start in indices[:, 0]])
        rng = np.random.default_rng([*indices[0]])
        special = [config.pad_id, config.bos_id, config.eos_id, self.head.mask_id]
        is_chosen = (rng.random(words.shape) < self.masked_share) & ~np.isin(words, special)
        others = rng.choice(np.setdiff1d(np.arange(config.vocab_size), special), words.shape)
        fate = rng.random(words.shape)
        changed = np.where(fate < MASKED, self.head.mask_id, others)
        inputs = np.where(is_chosen & (fate < REPLACED), changed, words)
        labels = np.where(is_chosen, words, IGNORED_LABEL)
        return LabelBatch(
            _frame_rows(inputs, config.bos_id, config.eos_id),
            _frame_rows(labels, IGNORED_LABEL, IGNORED_LABEL),
            torch.full((len(words),), config.max_source_tokens),
        )


def _frame_rows(rows: np.ndarray, first: int, last: int) -> Tensor:
    """Put a number before, and one after, each of rows [rows, length]."""
    before, after = (np.full((len(rows), 1), end) for end in (first, last))
    return torch.from_numpy(np.concatenate([before, rows, after], axis=1).astype(np.int64))


@dataclass(frozen=True)
class LabelData:
    """Texts with their special tokens, and the number of the label of each."""

    rows: list[list[int]]
    labels: list[int]
    repeats: np.ndarray
    tokens: SpecialTokens

    def with_repeats(self, repeats: Sequence[float]) -> "LabelData":
        """Return the data with each text repeated so many times in an epoch."""
        return replace(self, repeats=np.array(repeats))

    def epoch(self, seed: int, epoch: int, tokens_per_batch: int) -> list[np.ndarray]:
        """Draw the batches of one epoch, as arrays of text indices; a batch has at most
        `tokens_per_batch` tokens with padding.
        """
        rng = np.random.default_rng([seed, epoch])
        chosen = _repeat_indices(self.repeats, rng)
        lengths = np.array([len(self.rows[i]) for i in chosen])
        order = np.argsort(lengths * rng.uniform(1, 1 + LENGTH_NOISE, lengths.shape))
        batches = _fill(chosen[order], lengths[order], tokens_per_batch)
        return [batches[i] for i in rng.permutation(len(batches))]

    def batch(self, indices: np.ndarray) -> LabelBatch:
        rows = [self.rows[i] for i in indices]
        labels = torch.tensor([[self.labels[i]] for i in indices])
        lengths = torch.tensor([len(row) for row in rows])
        return LabelBatch(pad_rows(rows, self.tokens.pad_id), labels, lengths)


def _repeat_indices(repeats: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the indices of the examples of an epoch. A fractional number of repeats is a
    probability of one more.
    """
    whole = np.floor(repeats + rng.random(len(repeats))).astype(int)
    return np.repeat(np.arange(len(whole)), whole)


def _by_both_lengths(lengths: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the order of examples [examples, 2] in which neighbours have similar lengths on both
    sides: buckets by target length; within a bucket by source length, ascending and descending in
    turn.
    """
    noisy = lengths * rng.uniform(1, 1 + LENGTH_NOISE, lengths.shape)
    bucket = np.floor(np.log(noisy[:, 1]) / np.log(BUCKET_GROWTH) + rng.random())
    return np.lexsort((np.where(bucket % 2, -noisy[:, 0], noisy[:, 0]), bucket))


def pad_rows(rows: Sequence[Sequence[int]], value: int) -> Tensor:
    """Pad rows of ids with `value` to the length of the longest: [rows, longest]."""
    out = torch.full((len(rows), max(map(len, rows))), value)
    for i, row in enumerate(rows):
        out[i, : len(row)] = torch.tensor(row)
    return out


def _fill(indices: np.ndarray, lengths: np.ndarray, tokens_per_batch: int) -> list[np.ndarray]:
    """Cut examples, ordered by length, into batches with rows * longest within the budget."""
    batches, start, longest = [], 0, 0
    for i, length in enumerate(lengths):
        longest = max(longest, int(length))
        if longest * (i - start + 1) > tokens_per_batch and i > start:
            batches.append(indices[start:i])
            start, longest = i, int(length)
    batches.append(indices[start:])
    return batches


@dataclass(frozen=True)
class CarriedProse:
    """A stream of token ids for models that keep their state between batches. The stream is cut
    into one text for each row of a batch. A batch has the next window of each text, so that the
    state of a row is that after the window before.
    """

    stream: np.ndarray
    window: int
    tokens: SpecialTokens

    def epoch(self, seed: int, epoch: int, tokens_per_batch: int) -> list[np.ndarray]:
        """Return, for each batch, [rows, 2]: the start of each row's text and of its window. The
        texts are cut at other places in every epoch.
        """
        offset = int(np.random.default_rng([seed, epoch]).integers(self.window))
        length = len(self.stream) - offset
        rows = max(1, min(tokens_per_batch, length) // self.window)
        first = offset + np.arange(rows) * (length // rows)
        starts = range(0, length // rows - self.window + 1, self.window)
        return [np.stack([first, first + start], axis=1) for start in starts]

    def batch(self, indices: np.ndarray) -> FollowingBatch:
        first, start = indices.T
        read = self.stream[start[:, None] + np.arange(-1, self.window)].astype(np.int64)
        begins = bool(first[0] == start[0])
        if begins:
            read[:, 0] = self.tokens.bos_id
        ids = torch.from_numpy(read)
        return FollowingBatch(ids[:, :-1], ids[:, 1:], begins)
