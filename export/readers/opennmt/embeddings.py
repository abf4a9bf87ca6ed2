"""Word embeddings and the output layer of OpenNMT-py, called generator there."""

from export.readers.hugging_face.tensors import Source
from export.readers.torch_models import TorchModel

SOURCE = "encoder.embeddings.make_embedding.emb_luts.0.weight"
TARGET = "decoder.embeddings.make_embedding.emb_luts.0.weight"
OUTPUT, OUTPUT_BIAS = "generator.weight", "generator.bias"


class Embeddings:
    """Of both sides and of the output: one table if they are shared, else three."""

    def __init__(self, model: TorchModel) -> None:
        self._tensors = model.tensors
        source, target, output = model.dims(SOURCE, TARGET, OUTPUT)
        self.source_words, self.source_dim = source
        self.target_words, self.target_dim = target
        self.readout_dim = output[1]
        shared = [
            model.options.flag(name, False)
            for name in ("share_embeddings", "share_decoder_embeddings")
        ]
        self.are_tied = all(shared)
        self._tensors.drop(r"(encoder|decoder)\.embeddings\.make_embedding\.pe\.pe")

    def weights(self) -> dict[str, Source]:
        source = self._tensors.take(SOURCE, self.source_words, self.source_dim)
        target = self._tensors.take(TARGET, self.target_words, self.target_dim)
        output = self._tensors.take(OUTPUT, self.target_words, self.readout_dim)
        bias = self._tensors.take(OUTPUT_BIAS, self.target_words)
        if self.are_tied:
            return {"embedding.weight": target, "output_bias": bias}
        return {
            "source_embedding.weight": source,
            "target_embedding.weight": target,
            "output.weight": output,
            "output_bias": bias,
        }
