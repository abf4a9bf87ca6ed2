"""Shapes encoders: the graph `encode` puts out a vector of each text, and nothing is kept.

`encode_attention` is the same graph, told to put its weights out.
"""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from export.graph.model import ExportedModel
from export.graph.value import Value
from export.graph.weights import Weights
from export.graph.writer import GraphWriter
from export.layers.basic import Layers
from export.layers.encoders.head import finish
from export.layers.telling.telling import Telling
from models.configs.encoder import EncoderConfig
from serving.bundle.manifest import ENCODE_ATTENTION, SOURCE, Limits, Precision

Config = TypeVar("Config", bound=EncoderConfig)


class EncoderGraph(ABC, Generic[Config]):
    """Stands for one graph of a family in the making."""

    def __init__(self, config: Config, layers: Layers) -> None:
        self.config, self.layers, self.graph = config, layers, layers.graph
        self.telling = self.begin_telling()

    @classmethod
    def build(cls, config: Config, weights: Weights, precision: Precision) -> ExportedModel:
        """Write all graphs."""
        names = ("encode", ENCODE_ATTENTION)
        parts = [cls(config, Layers(GraphWriter(name), weights, precision)) for name in names]
        for part in parts:
            part.write()
        limits, told = Limits(config.max_source_tokens, 0), parts[-1].telling.shapes
        return ExportedModel(tuple(part.graph for part in parts), (), limits, attention=told)

    def write(self) -> None:
        source_ids = self.graph.input("source_ids", "int64", (SOURCE,))
        lengths = self.graph.input("source_lengths", "int32", ())
        finish(self.layers, self.encode(source_ids, lengths), self.config)

    @abstractmethod
    def encode(self, ids: Value, lengths: Value) -> Value:
        """Read texts [batch, source] of lengths int32 [batch]: a vector of each, [batch,
        vector_dim].
        """

    def begin_telling(self) -> Telling:
        return Telling(self.graph)
