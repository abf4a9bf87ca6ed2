"""Options of a vision encoder with a text decoder."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from models.configs.base import Conflict, Positive, Section, Size
from models.configs.transformer import Activation, BaseTransformerConfig, Norm

Resampling = Literal["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"]
Colour = Annotated[tuple[float, float, float], Field(strict=False)]  # in files a list


class Vision(Section):
    """A Vision Transformer (Dosovitskiy et al. 2021) over the patches of a square picture.

    image_size, patch_size: pixels of a side. resized: the side that pictures are resized to, of
    which the middle is cut out; None: image_size. num_class_tokens: read before the patches; DeiT
    has two (Touvron et al. 2021). The encoder reads (level * scale - mean) / deviation of each
    colour's level, 0 to 255.
    """

    image_size: Size = 224
    patch_size: Size = 16
    d_model: Size = 768
    num_heads: Size = 12
    ffn_dim: Size = 3072
    norm_epsilon: Positive = 1e-12
    activation: Activation = "gelu"
    num_class_tokens: int = Field(default=1, ge=0, le=2)
    resized: Size | None = None
    resample: Resampling = "bilinear"
    scale: Positive = 1 / 255
    mean: Colour = (0.5, 0.5, 0.5)
    deviation: Colour = (0.5, 0.5, 0.5)

    @property
    def num_patches(self) -> int:
        return (self.image_size // self.patch_size) ** 2

    @property
    def num_positions(self) -> int:
        """The number of vectors that the decoder attends to."""
        return self.num_class_tokens + self.num_patches


class VisionTransformerConfig(BaseTransformerConfig):
    """A Vision Transformer reads a picture, a Transformer's decoder writes about it (Li et al.
    2023, TrOCR). Options of the Transformer are the decoder's, but for `encoder_layers`.
    """

    architecture: Literal["vision-transformer"] = "vision-transformer"
    task: Literal["generate"] = "generate"  # type: ignore[assignment]
    vision: Vision = Vision()
    max_source_tokens: Size = 197

    @property
    def encoder(self) -> BaseTransformerConfig:
        """The options of the encoder's layers."""
        vision = self.vision
        return BaseTransformerConfig(
            architecture=self.architecture,
            vocab_size=self.vocab_size,
            d_model=vision.d_model,
            num_heads=vision.num_heads,
            ffn_dim=vision.ffn_dim,
            encoder_layers=self.encoder_layers,
            norm=Norm(epsilon=vision.norm_epsilon),
            activation=vision.activation,
            dropout=self.dropout,
        )

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        vision, max_source = self.vision, self.max_source_tokens
        if vision.image_size % vision.patch_size:
            message = f"patches of {vision.patch_size} do not fill a side of {vision.image_size}"
            yield Conflict(("vision",), message)
        elif max_source != vision.num_positions:
            message = f"max_source_tokens {max_source} must be the vision's {vision.num_positions}"
            yield Conflict(("vision", "max_source_tokens"), message)
        if vision.d_model % vision.num_heads:
            message = f"vision.d_model {vision.d_model} must be a multiple of {vision.num_heads}"
            yield Conflict(("vision",), message)
        if vision.resized is not None and vision.resized < vision.image_size:
            message = f"vision.resized {vision.resized} is less than {vision.image_size}"
            yield Conflict(("vision",), message)
        if min(vision.deviation) <= 0:
            yield Conflict(("vision",), "vision.deviation must be more than 0")
