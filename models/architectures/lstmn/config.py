"""Options of the LSTMN encoder-decoder."""

from typing import Literal

from models.configs.base import Size
from models.configs.recurrent import RecurrentConfig


class LstmnConfig(RecurrentConfig):
    """Long short-term memory-networks (Cheng, Dong and Lapata 2016): attention to a network's own
    past.

    fusion: the decoder reads the source as one more input ("shallow") or into its memory ("deep").
    """

    architecture: Literal["lstmn"] = "lstmn"
    cell: Literal["lstm"] = "lstm"
    attention_dim: Size = 256
    fusion: Literal["shallow", "deep"] = "deep"
