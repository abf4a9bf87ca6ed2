"""Options that encoders have in common."""

from abc import abstractmethod

from models.configs.base import ArchitectureConfig, Length
from models.configs.encoders.head import EmbeddingHead, Head, LabelHead


class EncoderConfig(ArchitectureConfig):
    """Reads a text or a pair of texts, and writes none."""

    max_source_tokens: Length = 512
    head: Head = EmbeddingHead()

    @property
    @abstractmethod
    def vector_dim(self) -> int:
        """Tell how large the vector of a text is that the head reads."""

    @property
    def task(self) -> str:
        return self.head.task

    @property
    def labels(self) -> tuple[str, ...]:
        """Name what is scored; of embeddings nothing."""
        return self.head.labels if isinstance(self.head, LabelHead) else ()

    @property
    def dense_dim(self) -> int:
        """Tell how large it is after the head's dense layers."""
        return self.head.dense[-1].dim if self.head.dense else self.vector_dim
