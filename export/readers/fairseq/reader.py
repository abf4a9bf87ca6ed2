"""Holds what readers of all fairseq's models have in common."""

from export.readers.common.toolkits import TorchModel
from export.readers.fairseq.embeddings import SOURCE, TARGET


class FairseqReader:
    """Knows one checkpoint, and the sizes of its two tables of words.

    dim: of both tables; models whose tables differ are refused.
    """

    def __init__(self, model: TorchModel) -> None:
        self.model, self.options, self.tensors = model, model.options, model.tensors
        source, target = model.dims(SOURCE, TARGET)
        self.source_words, source_dim = source
        self.target_words, self.dim = target
        if source_dim != self.dim:
            model.problems.append(f"embeddings of {source_dim} and {self.dim} are not supported")
