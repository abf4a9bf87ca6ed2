"""Options of the RNN encoder-decoder."""

from typing import Literal

from models.configs.recurrent import RecurrentConfig


class ChoConfig(RecurrentConfig):
    """RNN encoder-decoder with one fixed context (Cho et al. 2014)."""

    architecture: Literal["cho"] = "cho"
