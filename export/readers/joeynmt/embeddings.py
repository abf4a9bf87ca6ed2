"""Knows word embeddings and the output layer of JoeyNMT."""

from export.readers.common.toolkits import TorchModel

SOURCE, TARGET = "src_embed.lut.weight", "trg_embed.lut.weight"
OUTPUT = "decoder.output_layer.weight"
NAMES = {
    "embedding.weight": TARGET,
    "source_embedding.weight": SOURCE,
    "target_embedding.weight": TARGET,
    "output.weight": OUTPUT,
}


class Embeddings:
    """Measures the tables of both sides: one, with that of the output, if all are shared."""

    def __init__(self, model: TorchModel) -> None:
        source, target, output = model.dims(SOURCE, TARGET, OUTPUT)
        self.source_words, source_dim = source
        self.target_words, self.dim = target
        self.readout_dim = output[1]
        flag = model.options.flag
        self.are_tied = flag("tied_embeddings", False) and flag("tied_softmax", False)
        if source_dim != self.dim:
            message = f"embeddings of {source_dim} and {self.dim} numbers are not supported"
            model.problems.append(message)
        self.is_scaled = self._scales(model)

    def _scales(self, model: TorchModel) -> bool:
        """Tell whether words are multiplied by the root of their size; both sides must agree."""
        encoder, decoder = (
            model.options.section(stack).section("embeddings") for stack in ("encoder", "decoder")
        )
        is_scaled = encoder.flag("scale", False)
        if not model.options.flag("tied_embeddings", False):
            decoder.only("scale", is_scaled, *([] if is_scaled else [None]))
        return is_scaled
