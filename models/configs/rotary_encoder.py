"""Options of encoders' layers that rotate, which architectures share."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from models.configs.base import Conflict, Length, Positive, Section, Size
from models.configs.transformer import Activation, Frequencies, HasHeads, LayerNumbers, Norm


class Rotation(Section):
    """Queries and keys are rotated by their positions (Su et al. 2021).

    frequencies: of each pair, in radians per position; None: theta^(-2i / head_size). magnitude:
    factor that rotated queries and keys are multiplied by.
    """

    theta: Positive = 10000.0
    frequencies: Frequencies | None = None
    magnitude: Positive = 1.0

    def pairs_of(self, head_size: int) -> tuple[float, ...]:
        """Return the frequency of every rotated pair."""
        if self.frequencies is not None:
            return self.frequencies
        return tuple(self.theta ** (-i / head_size) for i in range(0, head_size, 2))


class LayerWindow(Section):
    """Some layers attend to positions at distances below `size` only (Beltagy et al. 2020)."""

    size: Size
    layers: LayerNumbers = Field(min_length=1)


class RotaryWindow(LayerWindow):
    """A window whose layers may have a rotation of their own."""

    rotation: Rotation = Rotation()


class RotaryEncoderImports(Section):
    """Options of Qwen and Gemma."""

    attention_bias: Literal["none", "qkv", "all"] = "none"
    ffn_bias: bool = False
    qk_norm: bool = False  # each head's queries and keys are normalised before they are rotated
    sandwich_norms: bool = False  # sublayers are normalised before and after (Gemma 2)
    attention_cap: Positive | None = None  # scores become cap * tanh(score / cap)


class RotaryStackConfig(HasHeads):
    """Rotations, windows, gated feed-forward networks, norms before sublayers, after them or on
    both sides.

    causal: tokens attend to themselves and to what comes before. embedding_norm: what the layers
    read is normalised; with norms before sublayers it takes the place of the first one.
    num_types: number of segments, such as the two texts of a pair.
    """

    max_source_tokens: Length = 512
    num_layers: Size = 4
    num_kv_heads: Size | None = None  # None: one for each head
    ffn_dim: Size = 512
    num_types: int = Field(default=0, ge=0, lt=2**16)
    causal: bool = False
    rotation: Rotation = Rotation()
    window: RotaryWindow | None = None
    norm: Norm = Norm()
    embedding_norm: bool = True
    activation: Activation = "gelu"
    imported: RotaryEncoderImports = RotaryEncoderImports()

    @property
    def kv_heads(self) -> int:
        return self.num_kv_heads or self.num_heads

    def window_of(self, layer: int) -> RotaryWindow | None:
        """Return the window of one layer."""
        return self.window if self.window and layer in self.window.layers else None

    def rotation_of(self, layer: int) -> Rotation:
        window = self.window_of(layer)
        return self.rotation if window is None else window.rotation

    def has_attention_norm(self, layer: int) -> bool:
        is_replaced = self.embedding_norm and self.norm.place == "pre" and layer == 0
        return not is_replaced

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if self.num_kv_heads is not None:
            yield from self.must_be_multiple("num_heads", "num_kv_heads")
        if self.imported.sandwich_norms and self.norm.place == "post":
            message = "imported.sandwich_norms needs norm.place pre"
            yield Conflict(("imported", "norm"), message)
        layers = self.window.layers if self.window else ()
        beyond = [layer for layer in layers if not 0 <= layer < self.num_layers]
        if beyond:
            message = f"window.layers {beyond} must be less than num_layers {self.num_layers}"
            yield Conflict(("window", "num_layers"), message)
        yield from self._excess_pairs()

    def _excess_pairs(self) -> Iterator[Conflict]:
        """Yield a conflict if heads cannot be cut into as many pairs as are rotated."""
        if self.head_dim is None and self.d_model % self.num_heads:
            return
        for field in ("rotation", "window") if self.window else ("rotation",):
            rotation = self.window.rotation if self.window and field == "window" else self.rotation
            pairs = len(rotation.pairs_of(self.head_size))
            if 2 * pairs > self.head_size:
                message = f"{field}: {pairs} pairs are too many for heads of {self.head_size}"
                yield Conflict((field, "head_dim", "d_model", "num_heads"), message)
