"""Options of the recurrent continuous translation model."""

from typing import Literal

from models.configs.recurrent import Cell, RecurrentConfig


class RctmConfig(RecurrentConfig):
    """RCTM I (Kalchbrenner and Blunsom 2013): convolutions make one vector of the source."""

    architecture: Literal["rctm"] = "rctm"
    cell: Cell = "rnn"

    @property
    def kernel_sizes(self) -> range:
        """2, 3, 4, ...: as many as it takes to make one column of the longest source."""
        num_columns, size = self.max_source_tokens - 1, 3
        while num_columns > 1:
            num_columns, size = num_columns - size + 1, size + 1
        return range(2, size)
