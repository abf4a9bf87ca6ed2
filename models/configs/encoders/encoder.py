"""Options that encoders have in common."""

from models.configs.base import ArchitectureConfig, Languages, Length
from models.configs.encoders.head import EmbeddingHead, Head


class EncoderConfig(ArchitectureConfig):
    """Reads a text or a pair of texts, and writes none."""

    languages: Languages = ("en",)
    max_source_tokens: Length = 512
    head: Head = EmbeddingHead()

    @property
    def task(self) -> str:
        return self.head.task
