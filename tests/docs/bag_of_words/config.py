from typing import Literal

from models.configs.base import Size, TranslationModelConfig


class BagOfWordsConfig(TranslationModelConfig):
    architecture: Literal["bag-of-words"] = "bag-of-words"
    dim: Size = 64
    tied_embeddings: bool = False
