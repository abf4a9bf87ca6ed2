"""Shapes encoder-decoders: a family is one class, of which each graph is an object.

`encode` writes what is kept of a source, `step` one token. What tells of attention is not written
twice: `encode_attention` and `step_attention` are the same, told to put their weights out.
"""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from export.graph.model import ExportedModel
from export.graph.value import Value
from export.graph.weights import Weights
from export.graph.writer import GraphWriter
from export.layers.attention_outputs import Telling
from export.layers.basic import Layers
from models.configs.base import TranslationModelConfig
from serving.bundle.manifest import (
    ENCODE_ATTENTION,
    SOURCE,
    STEP_ATTENTION,
    AttentionKind,
    AttentionShape,
    Limits,
    Precision,
    StateSpec,
)

Config = TypeVar("Config", bound=TranslationModelConfig)


class TranslatorGraph(ABC, Generic[Config]):
    """Stands for one graph of a family in the making.

    alignment_heads: those of the heads put out whose weights align words; without any there is no
    step that tells of attention.
    has_attentive_encoder: source tokens look at each other.
    """

    alignment_heads: tuple[int, ...] = (0,)
    has_attentive_encoder = False

    def __init__(self, config: Config, layers: Layers) -> None:
        self.config, self.layers, self.graph = config, layers, layers.graph
        self.telling = Telling(layers.graph)

    @classmethod
    def build(cls, config: Config, weights: Weights, precision: Precision) -> ExportedModel:
        """Write all graphs."""

        def part(name: str) -> "TranslatorGraph[Config]":
            return cls(config, Layers(GraphWriter(name), weights, precision))

        encode, step = part("encode"), part("step")
        steps = [step, part(STEP_ATTENTION)] if step.alignment_heads else [step]
        for each in steps:
            each.open()
        encode.write_encode()
        for each in steps:
            each.step()
        parts = [encode, *steps]
        if cls.has_attentive_encoder:
            parts.append(part(ENCODE_ATTENTION))
            parts[-1].write_encode()
        return ExportedModel(
            tuple(each.graph for each in parts),
            step.states,
            Limits(config.max_source_tokens, config.max_target_tokens),
            step.alignment_heads,
            {kind: shape for each in parts for kind, shape in each.telling.shapes.items()},
        )

    def write_encode(self) -> None:
        """Write what encodes."""
        source_ids = self.graph.input("source_ids", "int64", (SOURCE,))
        self.encode(source_ids, self.graph.input("source_lengths", "int32", ()))

    @property
    @abstractmethod
    def states(self) -> tuple[StateSpec, ...]:
        """Name what is kept between graphs."""

    @abstractmethod
    def encode(self, ids: Value, lengths: Value) -> None:
        """Write the states of sources [batch, source] of lengths int32 [batch]."""

    def open(self) -> None:
        """Declare what a step reads beside states; of all graphs before any is written."""
        self.ids = self.graph.input("ids", "int64", (1,))

    @abstractmethod
    def step(self) -> None:
        """Write the following states, and the scores of the next token, for `ids` [batch, 1]."""

    def tell(self, weights: Value) -> None:
        """Put out attention f32 [batch, source], of one head, where it is to be told."""
        if self.telling.is_on:
            shape = AttentionShape(1, 1)
            self.telling.put(AttentionKind.CROSS, weights.unsqueeze(1), shape)
