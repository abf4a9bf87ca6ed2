"""Says how large embedded words enter a model whose table also is its output layer."""

import math

from models.configs.base import ArchitectureConfig, Positive, Size


class HasScaledEmbeddings(ArchitectureConfig):
    """embedding_scale: what embedded words are multiplied by; None: sqrt(embedding_dim).

    A table that is tied to the output begins with a deviation of 1 / sqrt(embedding_dim), which
    makes logits of a right size and words that are too faint for a cell to hear. Weights that were
    trained elsewhere have a scale of 1.
    """

    embedding_dim: Size = 256
    embedding_scale: Positive | None = None

    @property
    def scale_of_embeddings(self) -> float:
        scale = self.embedding_scale
        return math.sqrt(self.embedding_dim) if scale is None else scale
