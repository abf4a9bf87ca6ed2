"""Says where recurrent models look: at all of a text, or at a window of it."""

from typing import Annotated, Literal

from pydantic import Field

from models.configs.base import Part, Size


class Global(Part):
    """Looks at the whole source (Luong et al. 2015, 3.1)."""

    kind: Literal["global"] = "global"


class LocalM(Part):
    """Looks at `window` positions to both sides of where the decoder is (3.2, D there); with 0, at
    the t-th word of the source alone when it writes the t-th of its own.
    """

    kind: Literal["local-m"] = "local-m"
    window: Annotated[int, Field(ge=0, lt=2**31)]


class LocalP(Part):
    """Looks at `window` positions to both sides of where it predicts to look (3.2)."""

    kind: Literal["local-p"] = "local-p"
    window: Size


class Additive(Part):
    """Scores through tanh, of `dim` numbers, over all of a text so far (Bahdanau et al. 2015)."""

    dim: Size


SourceAttention = Annotated[Global | LocalM | LocalP, Field(discriminator="kind")]
