"""Sequence to sequence (Sutskever et al. 2014): the encoder's last states begin the decoder's."""

from itertools import chain

from export.families.translators.translation import source_inputs, translation_model
from export.graph.model import ExportedModel
from export.graph.weights import Weights
from export.graph.writer import GraphWriter
from export.layers.basic import Layers
from export.layers.recurrent import RecurrentLayers, reverse_rows
from export.layers.vocabulary import Vocabulary
from models.configs.translators.sutskever import SutskeverConfig
from serving.bundle.manifest import Precision


def build(config: SutskeverConfig, weights: Weights, precision: Precision) -> ExportedModel:
    encode = Layers(GraphWriter("encode"), weights, precision)
    step = Layers(GraphWriter("step"), weights, precision)
    _encode(config, encode)
    _step(config, step)
    return translation_model(
        config,
        graphs=(encode.graph, step.graph),
        states=tuple(chain(*_stack(config, step, "decoder").states)),
    )


def _encode(config: SutskeverConfig, layers: Layers) -> None:
    ids, lengths = source_inputs(layers.graph)
    if config.reversed_source:
        ids = reverse_rows(layers, ids, lengths)
    encoder = _stack(config, layers, "encoder")
    _, last = encoder.encode(Vocabulary(config, layers).embed_source(ids), lengths)
    for spec, value in zip(chain(*encoder.states), chain(*last), strict=True):
        layers.graph.state_output(spec, value)


def _step(config: SutskeverConfig, layers: Layers) -> None:
    vocabulary = Vocabulary(config, layers)
    embedded = vocabulary.embed_token(layers.graph.input("ids", "int64", (1,)))
    hidden = _stack(config, layers, "decoder").step(embedded)
    sizes = config.hidden_dim, [config.readout_dim]
    vocabulary.choose(layers.linear(hidden, ["readout"], *sizes, bias=False))


def _stack(config: SutskeverConfig, layers: Layers, name: str) -> RecurrentLayers:
    sizes = config.embedding_dim, config.hidden_dim, config.num_layers
    return RecurrentLayers(layers, name, config.cell, *sizes)
