"""Options of RNNsearch."""

from typing import Literal

from models.configs.base import Size
from models.configs.recurrent import RecurrentConfig


class BahdanauConfig(RecurrentConfig):
    """RNNsearch (Bahdanau et al. 2015): bidirectional encoder, additive attention.

    score: v . tanh(q + k), or q . k, or q . k / sqrt(attention_dim), of q = W s_{i-1}, k = U h_j.
    hard_attention: outside training all of the weight goes to the position that has most.
    """

    architecture: Literal["bahdanau"] = "bahdanau"
    score: Literal["additive", "dot", "scaled-dot"] = "additive"
    hard_attention: bool = False
    attention_dim: Size = 256
    readout: Literal["maxout", "tanh"] = "maxout"
