"""Recurrent encoder-decoders of OpenNMT-py as our `luong`: onmt/encoders/rnn_encoder.py,
onmt/decoders/decoder.py, onmt/modules/global_attention.py.

    dot, general   score(h_t, h_s) = (W h_t) . h_s     readout tanh(W_out [c; h_t])
    mlp            v . tanh(W h_t + b + U h_s)         readout W_out [c; h_t] + b
"""

from typing import Any

from export.readers.hugging_face.tensors import Source, then, transposed
from export.readers.opennmt.embeddings import Embeddings
from export.readers.torch_models import LONGEST, TorchModel

SCORES = {"dot": "dot", "general": "general", "mlp": "concat"}
GATES = {"LSTM": 4, "GRU": 3}


class RecurrentReader:
    """Configuration and weights of one checkpoint."""

    def __init__(self, model: TorchModel, embeddings: Embeddings) -> None:
        self.model, self.embeddings = model, embeddings
        self.options, self.tensors = model.options, model.tensors

    def values(self) -> dict[str, Any]:
        """Options of ours."""
        self._refuse_what_differs()
        score = self.options.word("global_attention", "general")
        return {
            "architecture": "luong",
            "cell": self.options.word("rnn_type", "LSTM").lower(),
            "embedding_dim": self.embeddings.target_dim,
            "hidden_dim": self.embeddings.readout_dim,
            "readout_dim": self.embeddings.readout_dim,
            "embedding_scale": 1.0,
            "num_layers": self.model.count("encoder.rnn.weight_ih_l{}"),
            "score": SCORES.get(score, "general"),
            "biases": score == "mlp",
            "readout": "linear" if score == "mlp" else "tanh",
            "input_feeding": bool(self.options.values.get("input_feed", 1)),
            "bidirectional": self.options.word("encoder_type", "rnn") == "brnn",
            "bridge": self.options.flag("bridge", False),
            "max_source_tokens": LONGEST,
            "max_target_tokens": LONGEST,
        }

    def _refuse_what_differs(self) -> None:
        only = self.options.only
        only("decoder_type", "rnn")
        only("rnn_type", *GATES)
        only("global_attention", *SCORES)
        only("global_attention_function", "softmax")
        only("input_feed", 0, 1)
        only("coverage_attn", False)
        only("position_encoding", False)
        if "context_gate" in self.options:
            self.options.refuse("context_gate")
        if self.embeddings.source_dim != self.embeddings.target_dim:
            sizes = f"{self.embeddings.source_dim} and {self.embeddings.target_dim}"
            self.model.problems.append(f"embeddings of {sizes} numbers are not supported")

    def weights(self, config: Any) -> dict[str, Source]:
        """By our names."""
        decoder = self._fed_decoder if config.input_feeding else self._plain_decoder
        found = self.embeddings.weights() | self._encoder(config) | decoder(config)
        return found | self._attention(config)

    def _encoder(self, config: Any) -> dict[str, Source]:
        found: dict[str, Source] = {}
        dim = config.hidden_dim // config.num_directions
        for layer in range(config.num_layers):
            in_dim = config.hidden_dim if layer else config.embedding_dim
            for end in ("", "_reverse")[: config.num_directions]:
                for part, shape in self._shapes(config, in_dim, dim).items():
                    name = f"{part}_l{layer}{end}"
                    found[f"encoder.{name}"] = self.tensors.take(f"encoder.rnn.{name}", *shape)
        if config.bridge:
            size = dim * config.num_layers
            for state in range(2 if config.cell == "lstm" else 1):
                theirs, ours = f"encoder.bridge.{state}", f"bridge.parts.{state}"
                found[f"{ours}.weight"] = self.tensors.take(f"{theirs}.weight", size, size)
                found[f"{ours}.bias"] = self.tensors.take(f"{theirs}.bias", size)
        return found

    def _shapes(self, config: Any, in_dim: int, dim: int) -> dict[str, tuple[int, ...]]:
        gates = GATES[config.cell.upper()] * dim
        return {
            "weight_ih": (gates, in_dim),
            "weight_hh": (gates, dim),
            "bias_ih": (gates,),
            "bias_hh": (gates,),
        }

    def _fed_decoder(self, config: Any) -> dict[str, Source]:
        """Cells one by one; the first reads a word and the attentional vector side by side."""
        found: dict[str, Source] = {}
        words, dim = config.embedding_dim, config.hidden_dim
        for layer in range(config.num_layers):
            in_dim = dim if layer else words + dim
            found |= self._cell(config, layer, (f"decoder.rnn.layers.{layer}.", ""), in_dim)
        name = "decoder.layers.0"
        both = found[f"{name}.input.weight"]
        found[f"{name}.input.weight"] = then(both, lambda weight: weight[:, :words])
        found[f"{name}.context.weight"] = then(both, lambda weight: weight[:, words:])
        return found

    def _plain_decoder(self, config: Any) -> dict[str, Source]:
        found: dict[str, Source] = {}
        for layer in range(config.num_layers):
            in_dim = config.hidden_dim if layer else config.embedding_dim
            found |= self._cell(config, layer, ("decoder.rnn.", f"_l{layer}"), in_dim)
        return found

    def _cell(
        self, config: Any, layer: int, around: tuple[str, str], in_dim: int
    ) -> dict[str, Source]:
        """`around`: what stands before and after the names of torch's weights."""
        before, after = around
        taken = {
            part: self.tensors.take(f"{before}{part}{after}", *shape)
            for part, shape in self._shapes(config, in_dim, config.hidden_dim).items()
        }
        name = f"decoder.layers.{layer}"
        return {
            f"{name}.input.weight": taken["weight_ih"],
            f"{name}.input.bias": taken["bias_ih"],
            f"{name}.hidden.weight": taken["weight_hh"],
            f"{name}.hidden.bias": taken["bias_hh"],
        }

    def _attention(self, config: Any) -> dict[str, Source]:
        dim, take = config.hidden_dim, self.tensors.take
        theirs, score = "decoder.attn", "attention.score"
        found = {"readout.weight": take(f"{theirs}.linear_out.weight", dim, 2 * dim)}
        if config.score == "general":
            key = transposed(take(f"{theirs}.linear_in.weight", dim, dim))
            found[f"{score}.key.weight"] = key
        if config.score == "concat":
            found["readout.bias"] = take(f"{theirs}.linear_out.bias", dim)
            found[f"{score}.key.weight"] = take(f"{theirs}.linear_context.weight", dim, dim)
            found[f"{score}.query.weight"] = take(f"{theirs}.linear_query.weight", dim, dim)
            found[f"{score}.query.bias"] = take(f"{theirs}.linear_query.bias", dim)
            found[f"{score}.score.weight"] = take(f"{theirs}.v.weight", 1, dim)
        return found
