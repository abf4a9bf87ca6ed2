"""Graphs of encoder-decoders: an architecture is one class, and each of its graphs is an object.

`encode` writes what is kept of a source, `step` reads one token. `encode_attention` and
`step_attention` are written by the same code, and put their attention weights out too.
"""

from abc import ABC, abstractmethod
from itertools import chain
from typing import Generic, TypeVar

from export.graph.model import ExportedModel, Weights
from export.graph.writer import GraphWriter, Value
from export.layers.basic import Layers
from export.layers.memory import AttentionOutputs
from models.configs.base import TranslationModelConfig
from serving.bundle.manifest import (
    ENCODE_ATTENTION,
    SOURCE,
    STEP_ATTENTION,
    AttentionKind,
    Limits,
    Precision,
    StateSpec,
)

Config = TypeVar("Config", bound=TranslationModelConfig)


class TranslatorGraph(ABC, Generic[Config]):
    """One graph of an encoder-decoder.

    alignment_heads: the heads, of those put out, whose weights align words. Without any there is no
    graph `step_attention`.
    has_attentive_encoder: source tokens attend to each other.
    in_blocks: int8 is by blocks of weights; see `Layers`.
    tokens_at_once: tokens of each row that a step reads, or the name of that axis: then a run may
        also read several tokens of one row, such as a prompt. ONNX Runtime's own operator of
        cross-attention reads one, so such runs need the native kernels, or CUDA.
    """

    alignment_heads: tuple[int, ...] = (0,)
    has_attentive_encoder = False
    in_blocks = False
    tokens_at_once: int | str = 1

    def __init__(self, config: Config, layers: Layers) -> None:
        self.config, self.layers, self.graph = config, layers, layers.graph
        self.attention_outputs = AttentionOutputs(layers.graph, self.tokens_at_once)

    @classmethod
    def build(cls, config: Config, weights: Weights, precision: Precision) -> ExportedModel:
        """Write all graphs."""

        def part(name: str) -> "TranslatorGraph[Config]":
            layers = Layers(GraphWriter(name), weights, precision, in_blocks=cls.in_blocks)
            return cls(config, layers)

        encode, step = part("encode"), part("step")
        steps = [step, part(STEP_ATTENTION)] if step.alignment_heads else [step]
        for step_graph in steps:
            step_graph.open()
        encode.write_encode()
        for step_graph in steps:
            step_graph.step()
        parts = [encode, *steps]
        if cls.has_attentive_encoder:
            parts.append(part(ENCODE_ATTENTION))
            parts[-1].write_encode()
        return ExportedModel(
            tuple(step_graph.graph for step_graph in parts),
            step.states,
            Limits(config.max_source_tokens, config.max_target_tokens, config.split_tokens),
            step.alignment_heads,
            dict(
                chain.from_iterable(
                    step_graph.attention_outputs.shapes.items() for step_graph in parts
                )
            ),
        )

    def write_encode(self) -> None:
        """Declare the encoder's inputs and write its graph."""
        source_ids = self.graph.input("source_ids", "int64", (SOURCE,))
        self.encode(source_ids, self.graph.input("source_lengths", "int32", ()))

    @property
    @abstractmethod
    def states(self) -> tuple[StateSpec, ...]:
        """The states that are kept between graphs."""

    @abstractmethod
    def encode(self, ids: Value, lengths: Value) -> None:
        """Write the states of sources [batch, source] of lengths int32 [batch]."""

    def open(self) -> None:
        """Declare what a step reads besides states; called for all graphs before any is written."""
        self.ids = self.graph.input("ids", "int64", (self.tokens_at_once,))

    @abstractmethod
    def step(self) -> None:
        """Write the next states, and the scores of the next token, for `ids` [batch, tokens]."""

    def put_cross_attention(self, weights: Value) -> None:
        """Put out attention f32 [batch, source], of one head, if the graph does."""
        if self.attention_outputs.is_on:
            self.attention_outputs.put(AttentionKind.CROSS, weights.unsqueeze(1))
