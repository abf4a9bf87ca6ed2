"""Options of sequence to sequence."""

from typing import Literal

from models.configs.base import Size
from models.configs.recurrent import Cell, RecurrentConfig


class SutskeverConfig(RecurrentConfig):
    """Deep LSTM encoder and decoder (Sutskever et al. 2014).

    reversed_source: the encoder reads the source from its end to its beginning (section 3.3).
    """

    architecture: Literal["sutskever"] = "sutskever"
    cell: Cell = "lstm"
    num_layers: Size = 4
    reversed_source: bool = False
