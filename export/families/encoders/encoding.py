"""Shapes encoders: one graph, `encode`, puts out a vector of each text, and nothing is kept."""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from export.graph.model import ExportedModel
from export.graph.value import Value
from export.graph.weights import Weights
from export.graph.writer import GraphWriter
from export.layers.basic import Layers
from export.layers.encoders.head import finish
from models.configs.encoders.encoder import EncoderConfig
from serving.bundle.manifest import SOURCE, Limits, Precision

Config = TypeVar("Config", bound=EncoderConfig)


class EncoderGraph(ABC, Generic[Config]):
    """Stands for the graph of a family in the making."""

    def __init__(self, config: Config, layers: Layers) -> None:
        self.config, self.layers, self.graph = config, layers, layers.graph

    @classmethod
    def build(cls, config: Config, weights: Weights, precision: Precision) -> ExportedModel:
        """Write the graph."""
        encode = cls(config, Layers(GraphWriter("encode"), weights, precision))
        source_ids = encode.graph.input("source_ids", "int64", (SOURCE,))
        lengths = encode.graph.input("source_lengths", "int32", ())
        finish(encode.layers, encode.encode(source_ids, lengths), config)
        return ExportedModel((encode.graph,), (), Limits(config.max_source_tokens, 0))

    @abstractmethod
    def encode(self, ids: Value, lengths: Value) -> Value:
        """Read texts [batch, source] of lengths int32 [batch]: a vector of each, [batch,
        vector_dim].
        """
