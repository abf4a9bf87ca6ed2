"""The interfaces of all models, for training and decoding.

A translator begins with `encode`, a language model with `empty_state`. Both read any number of
tokens after a state and score the next one. Training on whole texts and decoding token by token
follow from that. Reading a text in one piece or in several gives the same.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from torch import Tensor, nn

from models.batch import LabelBatch, LanguageBatch, TensorFields, TranslationBatch
from models.configs.base import (
    ArchitectureConfig,
    EncoderConfig,
    LanguageModelConfig,
    TranslationModelConfig,
)


@dataclass(frozen=True)
class DecoderState(TensorFields):
    """What a model carries from token to token; each architecture has a subclass.

    Fields are tensors whose first axis is the batch, numbers that all rows share, and None for what
    does not exist yet.
    """

    def select(self, rows: Tensor) -> Self:
        """Return the state with these rows, in this order; a row may occur more than once."""
        return self.map_tensors(lambda x: x[rows])


S = TypeVar("S", bound=DecoderState)


class GenerativeModel(nn.Module, ABC, Generic[S]):
    """What translators and language models share, and all that decoding needs of them."""

    config: ArchitectureConfig

    @abstractmethod
    def read(self, ids: Tensor, state: S) -> tuple[Tensor, S]:
        """Read ids [batch, new] after a state. Return what predicts the token after each of them,
        [batch, new, dim], and the next state.
        """

    @abstractmethod
    def project(self, hidden: Tensor) -> Tensor:
        """Return logits [..., vocabulary] of vectors [..., dim] that `read` returned."""

    def step(self, ids: Tensor, state: S) -> tuple[Tensor, S]:
        """Read one token of each row, ids [batch]. Return [batch, dim] and the next state."""
        hidden, state = self.read(ids[:, None], state)
        return hidden[:, 0], state


class TranslationModel(GenerativeModel[S]):
    """A model that writes a target for a source."""

    config: TranslationModelConfig

    @abstractmethod
    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> S:
        """Read sources [batch, source] of these lengths [batch]. Return the state before any
        target.
        """

    def forward(self, batch: TranslationBatch) -> Tensor:
        """Return what `read` returns for whole targets: [batch, target, dim]."""
        state = self.encode(batch.source_ids, batch.source_lengths)
        return self.read(batch.input_ids, state)[0]


class LanguageModel(GenerativeModel[S]):
    """A model that continues a text."""

    config: LanguageModelConfig

    @abstractmethod
    def empty_state(self) -> S:
        """Return the state before any token, the same for any number of rows."""

    def forward(self, batch: LanguageBatch) -> Tensor:
        """Return what `read` returns for whole texts: [batch, length, dim]."""
        return self.read(batch.input_ids, self.empty_state())[0]


class EncoderModel(nn.Module, ABC):
    """A model that generates nothing: it makes an embedding of a text, or scores labels of it or of
    its tokens, or scores masked words.
    """

    config: EncoderConfig

    @abstractmethod
    def encode(
        self, source_ids: Tensor, source_lengths: Tensor, source_types: Tensor | None = None
    ) -> Tensor:
        """Read texts [batch, source] of these lengths [batch]. Return the input of `project`,
        [batch, dim], or [batch, source, dim] if the head reads each token.

        source_types: each token's segment; None: all are in the first.
        """

    @abstractmethod
    def project(self, hidden: Tensor) -> Tensor:
        """Return embeddings [..., dim] or logits, [..., labels] or [..., vocabulary]."""

    def hops(self, source_ids: Tensor, source_lengths: Tensor) -> Tensor | None:
        """Return the weights of each hop [batch, hops, source]; None for models without hops."""
        return None

    def forward(self, batch: LabelBatch) -> Tensor:
        """Return vectors [batch, 1, dim] of whole texts, each of which has one label to predict, or
        those of all tokens [batch, source, dim].
        """
        hidden = self.encode(batch.input_ids, batch.lengths)
        return hidden if self.config.head.per_token else hidden[:, None]


AnyModel = TranslationModel[Any] | LanguageModel[Any]
