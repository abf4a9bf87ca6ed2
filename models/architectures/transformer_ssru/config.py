"""Options of the Transformer with a recurrent decoder."""

from typing import Literal

from models.configs.base import Size
from models.configs.transformer import Added, BaseTransformerConfig, Sinusoidal


class TransformerSSRUConfig(BaseTransformerConfig):
    """Transformer encoder, simpler simple recurrent units in the decoder (Kim et al. 2019)."""

    architecture: Literal["transformer-ssru"] = "transformer-ssru"
    positions: Added = Sinusoidal()
    encoder_layers: Size = 6
