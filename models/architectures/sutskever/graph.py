"""Graphs of sequence to sequence (Sutskever et al. 2014): the encoder's last states begin the
decoder.
"""

from itertools import chain

from export.graph.writer import Value
from export.layers.basic import Layers
from export.layers.recurrent import RecurrentLayers, reverse_rows
from export.layers.translator import TranslatorGraph
from export.layers.vocabulary import recurrent_vocabulary
from models.architectures.sutskever.config import SutskeverConfig
from serving.bundle.manifest import StateSpec


class SutskeverGraph(TranslatorGraph[SutskeverConfig]):
    alignment_heads = ()

    def __init__(self, config: SutskeverConfig, layers: Layers) -> None:
        super().__init__(config, layers)
        self.words = recurrent_vocabulary(layers, config)
        sizes = config.embedding_dim, config.hidden_dim, config.num_layers
        self.encoder, self.decoder = (
            RecurrentLayers(layers, name, config.cell, *sizes) for name in ("encoder", "decoder")
        )

    @property
    def states(self) -> tuple[StateSpec, ...]:
        return tuple(chain(*self.decoder.states))

    def encode(self, ids: Value, lengths: Value) -> None:
        if self.config.reversed_source:
            ids = reverse_rows(ids, lengths)
        _, last = self.encoder.encode(self.words.embed_source(ids), lengths)
        for state, value in zip(self.states, chain(*last), strict=True):
            self.graph.state_output(state, value)

    def step(self) -> None:
        hidden = self.decoder.step(self.words.embed_token(self.ids))
        sizes = self.config.hidden_dim, [self.config.readout_dim]
        self.words.choose(self.layers.linear(hidden, ["readout"], *sizes, bias=False))


build = SutskeverGraph.build
