"""Shapes encoder-decoders: a family is one class, of which each graph is an object.

`encode` writes what is kept of a source, `step` one token. What tells of attention is not written
twice: `step_attention` is the same step, told to put its weights out.
"""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from export.graph.model import ExportedModel
from export.graph.value import Value
from export.graph.weights import Weights
from export.graph.writer import GraphWriter
from export.layers.basic import Layers
from models.configs.base import TranslationModelConfig
from serving.bundle.manifest import SOURCE, Limits, Precision, StateSpec

Config = TypeVar("Config", bound=TranslationModelConfig)


class TranslatorGraph(ABC, Generic[Config]):
    """Stands for one graph of a family in the making.

    alignment_heads: those of the heads put out whose weights align words; without any there is no
    graph that tells of attention.
    """

    alignment_heads: tuple[int, ...] = (0,)

    def __init__(self, config: Config, layers: Layers, tells_attention: bool) -> None:
        self.config, self.layers, self.graph = config, layers, layers.graph
        self.tells_attention = tells_attention

    @classmethod
    def build(cls, config: Config, weights: Weights, precision: Precision) -> ExportedModel:
        """Write all graphs."""

        def part(name: str) -> "TranslatorGraph[Config]":
            layers = Layers(GraphWriter(name), weights, precision)
            return cls(config, layers, name == "step_attention")

        encode, step = part("encode"), part("step")
        steps = [step, part("step_attention")] if step.alignment_heads else [step]
        for each in steps:
            each.open()
        source_ids = encode.graph.input("source_ids", "int64", (SOURCE,))
        encode.encode(source_ids, encode.graph.input("source_lengths", "int32", ()))
        for each in steps:
            each.step()
        graphs = tuple(each.graph for each in (encode, *steps))
        limits = Limits(config.max_source_tokens, config.max_target_tokens)
        return ExportedModel(graphs, step.states, limits, step.alignment_heads)

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
        if self.tells_attention:
            self.graph.output("attention", weights.unsqueeze(1), "float32", (1, SOURCE))
