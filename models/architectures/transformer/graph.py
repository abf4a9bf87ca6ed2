"""Graphs of the Transformer: `encode` writes cross-attention's keys and values, `step` appends its
own.
"""

from export.layers.transformer import SelfAttentionGraph
from models.architectures.transformer.config import TransformerConfig


class TransformerGraph(SelfAttentionGraph[TransformerConfig]):
    """Decodes by layers that attend to the target so far and to the source."""


build = TransformerGraph.build
