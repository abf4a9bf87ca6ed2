"""Knows word embeddings and the output layer of OpenNMT-py, called generator there."""

from export.readers.common.toolkits import TorchModel

SOURCE = "encoder.embeddings.make_embedding.emb_luts.0.weight"
TARGET = "decoder.embeddings.make_embedding.emb_luts.0.weight"
OUTPUT = "generator.weight"
NEEDLESS = (r"(encoder|decoder)\.embeddings\.make_embedding\.pe\.pe",)  # sinusoids

NAMES = {
    "embedding.weight": TARGET,
    "source_embedding.weight": SOURCE,
    "target_embedding.weight": TARGET,
    "output.weight": OUTPUT,
    "output_bias": "generator.bias",
}


class Embeddings:
    """Measures the tables of both sides and of the output: one if they are shared, else three."""

    def __init__(self, model: TorchModel) -> None:
        source, target, output = model.dims(SOURCE, TARGET, OUTPUT)
        self.source_words, self.source_dim = source
        self.target_words, self.target_dim = target
        self.readout_dim = output[1]
        flag = model.options.flag
        shared = flag("share_embeddings", False), flag("share_decoder_embeddings", False)
        self.are_tied = all(shared)
