"""Options of RNNsearch."""

from typing import Literal

from models.configs.base import Size
from models.configs.recurrent import RecurrentConfig


class BahdanauConfig(RecurrentConfig):
    """RNNsearch (Bahdanau et al. 2015): bidirectional encoder, additive attention."""

    architecture: Literal["bahdanau"] = "bahdanau"
    attention_dim: Size = 256
    readout: Literal["maxout", "tanh"] = "maxout"
