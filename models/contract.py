"""Says what every model is to whoever trains it or decodes with it.

A family says how it begins, a translator by `encode`, a language model by `empty_state`; how it
reads tokens after a state, any number at once; and how it scores the next one. Training on whole
texts and decoding token by token follow. Reading a text in one piece or in many gives the same.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

from torch import Tensor, nn

from models.batch import LabelBatch, LanguageBatch, Tensors, TranslationBatch
from models.configs.base import ArchitectureConfig, LanguageModelConfig, TranslationModelConfig
from models.configs.encoder import EncoderConfig


@dataclass(frozen=True)
class State(Tensors):
    """Is what a model carries from token to token, of a subclass for each family: tensors whose
    first axis is the batch, and what all rows share: numbers, and None for what there is not yet.
    """

    def select(self, rows: Tensor) -> Self:
        """Take these rows of every tensor, in this order; a row may come more than once."""
        return self.each(lambda x: x[rows])


S = TypeVar("S", bound=State)


class Model(Protocol[S]):
    """Is what decoding needs of a model that has begun."""

    @property
    def config(self) -> ArchitectureConfig: ...

    def read(self, ids: Tensor, state: S) -> tuple[Tensor, S]: ...

    def step(self, ids: Tensor, state: S) -> tuple[Tensor, S]: ...

    def project(self, hidden: Tensor) -> Tensor: ...


class _Reader(nn.Module, ABC, Generic[S]):
    """Is what translators and language models share."""

    @abstractmethod
    def read(self, ids: Tensor, state: S) -> tuple[Tensor, S]:
        """Read ids [batch, new] after a state, of all rows as many: what predicts the token after
        each of them, [batch, new, dim], and the state with them.
        """

    @abstractmethod
    def project(self, hidden: Tensor) -> Tensor:
        """Score the vocabulary: [..., dim], of what `read` gives, -> logits [..., vocabulary]."""

    def step(self, ids: Tensor, state: S) -> tuple[Tensor, S]:
        """Read one token of each row, ids [batch] -> [batch, dim] and the next state."""
        hidden, state = self.read(ids[:, None], state)
        return hidden[:, 0], state


class Translator(_Reader[S]):
    """Writes a target that follows from a source."""

    config: TranslationModelConfig

    @abstractmethod
    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> S:
        """Read sources [batch, source] of these lengths [batch]: the state before any target."""

    def forward(self, batch: TranslationBatch) -> Tensor:
        """Read whole targets: [batch, target, dim]."""
        state = self.encode(batch.source_ids, batch.source_lengths)
        return self.read(batch.input_ids, state)[0]


class LanguageModel(_Reader[S]):
    """Goes on with a text."""

    config: LanguageModelConfig

    @abstractmethod
    def empty_state(self) -> S:
        """Return the state before any token, which is the same for any number of rows."""

    def forward(self, batch: LanguageBatch) -> Tensor:
        """Read whole texts: [batch, length, dim]."""
        return self.read(batch.input_ids, self.empty_state())[0]


class Encoder(nn.Module, ABC):
    """Makes one vector of a text, and writes nothing: an embedding, or scores of labels."""

    config: EncoderConfig

    @abstractmethod
    def encode(
        self, source_ids: Tensor, source_lengths: Tensor, source_types: Tensor | None = None
    ) -> Tensor:
        """Read texts [batch, source] of these lengths [batch]: what `project` reads, [batch, dim].

        source_types: each token's segment; None: all are in the first.
        """

    @abstractmethod
    def project(self, hidden: Tensor) -> Tensor:
        """Give embeddings [..., dim] or logits [..., labels] of what `encode` gives."""

    def hops(self, source_ids: Tensor, source_lengths: Tensor) -> Tensor | None:
        """Tell by what each hop weighs texts' tokens, [batch, hops, source]; None without hops."""
        return None

    def forward(self, batch: LabelBatch) -> Tensor:
        """Read whole texts, each of which has one label to predict: [batch, 1, dim]."""
        return self.encode(batch.input_ids, batch.lengths)[:, None]


AnyModel = Translator[Any] | LanguageModel[Any]
