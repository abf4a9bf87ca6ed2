"""Shapes encoders: the graph `encode` puts out a vector of each text, and nothing is kept.

`encode_attention` is the same graph, told to put its weights out.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, TypeVar

from export.graph.model import ExportedModel
from export.graph.value import Value
from export.graph.weights import Weights
from export.graph.writer import GraphWriter
from export.layers.basic import Layers
from export.layers.encoders.head import finish
from models.configs.encoders.encoder import EncoderConfig
from serving.bundle.manifest import SOURCE, Limits, Precision

PLAIN, TELLING = "encode", "encode_attention"
Config = TypeVar("Config", bound=EncoderConfig)


class EncoderGraph(ABC, Generic[Config]):
    """Stands for one graph of a family in the making. has_attention: whether there is one that
    tells of attention.
    """

    has_attention: ClassVar[bool] = False

    def __init__(self, config: Config, layers: Layers) -> None:
        self.config, self.layers, self.graph = config, layers, layers.graph

    @classmethod
    def build(cls, config: Config, weights: Weights, precision: Precision) -> ExportedModel:
        """Write all graphs."""
        names = [PLAIN, TELLING] if cls.has_attention else [PLAIN]
        parts = [cls(config, Layers(GraphWriter(name), weights, precision)) for name in names]
        for part in parts:
            part.write()
        limits = Limits(config.max_source_tokens, 0)
        return ExportedModel(tuple(part.graph for part in parts), (), limits)

    def write(self) -> None:
        source_ids = self.graph.input("source_ids", "int64", (SOURCE,))
        lengths = self.graph.input("source_lengths", "int32", ())
        finish(self.layers, self.encode(source_ids, lengths), self.config)

    @abstractmethod
    def encode(self, ids: Value, lengths: Value) -> Value:
        """Read texts [batch, source] of lengths int32 [batch]: a vector of each, [batch,
        vector_dim].
        """

    def tell(self, weights: Value, num_heads: int) -> None:
        """Put out attention f32 [batch, num_heads, source], where it is to be told."""
        if self.graph.name == TELLING:
            self.graph.output("attention", weights, "float32", (num_heads, SOURCE))
