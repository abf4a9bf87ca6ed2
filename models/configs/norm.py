"""Says how a Transformer normalises, and where."""

from typing import Literal

from models.configs.base import Part, Positive


class Norm(Part):
    """LayerNorm (Ba et al. 2016) or RMSNorm (Zhang and Sennrich 2019), of what enters a sublayer
    ("pre") or of what left it and was added ("post", as in Vaswani et al. 2017).
    """

    kind: Literal["layer", "rms"] = "layer"
    place: Literal["pre", "post"] = "pre"
    epsilon: Positive = 1e-5
