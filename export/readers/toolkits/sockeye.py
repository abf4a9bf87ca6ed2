"""Folders of Sockeye 3 (Hieber et al. 2022): Transformers, with SSRUs in the decoder or not.

    config  params.best  vocab.src.0.json  vocab.trg.0.json

Sources end with </s>; targets begin with <s> and end before </s>. Sockeye 1 and 2 kept their
weights in files of MXNet, which are recognised by name and refused.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from export.readers.common.options import Options, read_yaml
from export.readers.common.shapes import STACKS, transformer_shapes
from export.readers.common.torch_files import is_torch_file, read_torch
from export.readers.common.weights import (
    ZEROS,
    Table,
    TensorReference,
    WeightReader,
    WeightSource,
    read_weights,
)
from export.readers.toolkits.toolkit import TorchModel, language_options
from models.checkpoint import UNKNOWN_LANGUAGE, Checkpoint, CheckpointError
from models.conventions import Conventions
from models.files import read_json
from models.safetensors import Array

CONFIG, PARAMETERS = "config", "params.best"
VOCABULARIES = {"source": "vocab.src.0.json", "target": "vocab.trg.0.json"}
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
PAD, UNK, BOS, EOS = range(len(SPECIAL))


def can_read(source: Path) -> bool:
    """Return whether the source is a folder of Sockeye, or the parameters in one."""
    path = _file(source)
    return path.is_file() and (path.parent / CONFIG).is_file() and path.name.startswith("params.")


def _file(source: Path) -> Path:
    return source / PARAMETERS if source.is_dir() else source


def read_checkpoint(source: Path) -> Checkpoint:
    """Return the model, its weights not read yet. Raises CheckpointError with every problem."""
    path = _file(source)
    if not is_torch_file(path):
        message = (
            f"{path.name} is no file of torch: Sockeye 1 and 2 wrote MXNet's, which is not read"
        )
        raise CheckpointError(source, [message])
    problems: list[str] = []
    options = Options(CONFIG, read_yaml(path.parent / CONFIG, problems), problems)
    state = read_torch(path, frozenset())
    model = TorchModel(
        path, "Sockeye", options.values, state if isinstance(state, dict) else {}, problems
    )
    model.options.file = CONFIG
    source_words, target_words = (rows for rows, _ in model.dims(SOURCE, TARGET))
    reader = SockeyeTransformer(model)
    words = {
        side: _words(model, VOCABULARIES[side], number)
        for side, number in (("source", source_words), ("target", target_words))
    }
    values = reader.values() | language_options([UNKNOWN_LANGUAGE] * 2, PAD, BOS, EOS)
    model.check()
    tokenizers = model.tokenizers(words, SPECIAL, SPECIAL[UNK])
    config = model.configured(values)
    conventions = Conventions(source_suffix=(EOS,), prompt_prefix=(BOS,), stop=(EOS,), unk=UNK)
    weights = reader.weights(config)
    return replace(model.checkpoint(config, weights, conventions, tokenizers), folder=source)


def _words(model: TorchModel, name: str, number: int) -> list[str]:
    """Return words by their ids; none, and a problem, if the file does not fit the model."""
    path, problems = model.path.parent / name, model.problems
    ids = model.read_beside(path, lambda file: read_json(file) or {}, "parameters")
    if ids is None:
        return []
    if not isinstance(ids, dict) or sorted(map(str, ids.values())) != sorted(
        map(str, range(number))
    ):
        problems.append(
            f"{path.name} does not number words from 0 to {number - 1}, as the model has"
        )
        return []
    words = sorted(ids, key=lambda word: int(ids[word]))
    if tuple(words[: len(SPECIAL)]) != SPECIAL:
        problems.append(f"{path.name} does not begin with {', '.join(SPECIAL)}")
        return []
    return words


SOURCE, TARGET = "embedding_source.embedding.weight", "embedding_target.embedding.weight"
OUTPUT = "output_layer"
# what happens before and after a sublayer, without dropout: its input added, normalisation
NORMS = {("n", "r"): "pre", ("", "rn"): "post"}
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish1": "swish"}
DECODERS = ("transformer", "ssru_transformer")
TYINGS = ("none", "src_trg", "trg_softmax", "src_trg_softmax")
SUPPORTED: dict[str, tuple[Any, ...]] = {
    "use_lhuc": (False,),
    "block_prepended_cross_attention": (False,),
    "act_type": tuple(ACTIVATIONS),
    "positional_embedding_type": ("fixed", "learned"),
}
IGNORED = (r"nvs\..*", r"length_ratio\..*", r".*\.kv_interleaved")  # what makes Sockeye faster
EPSILON = 1e-6
SUBLAYERS = {
    "encoder": ("self_attention", "ff"),
    "decoder": ("autoregr_layer", "enc_attention", "ff"),
}
OURS = {
    "ff": "feed_forward",
    "enc_attention": "cross_attention",
    "self_attention": "self_attention",
}


class SockeyeTransformer:
    """A Transformer: sockeye/transformer.py, layers.py and model.py.

    Attention has no biases. Keys and values are in one matrix, head by head.
    """

    def __init__(self, model: TorchModel) -> None:
        self.model, self.options, self.tensors = model, model.options, model.tensors
        self.stacks = {stack: model.options.section(f"config_{stack}") for stack in STACKS}
        self.has_ssru = self.stacks["decoder"].word("decoder_type", DECODERS[0]) == DECODERS[1]

    def values(self) -> dict[str, Any]:
        """Return the values of our configuration."""
        self._refuse_what_differs()
        encoder = self.stacks["encoder"]
        rows = self.model.dims(
            SOURCE, TARGET, *(f"{stack}.pos_embedding.weight" for stack in STACKS)
        )
        tying = self.options.word("weight_tying_type", "none")
        is_tied = tying == "src_trg_softmax"
        activation = encoder.word("act_type", "relu")
        return {
            "architecture": "transformer-ssru" if self.has_ssru else "transformer",
            "vocab_size": rows[1][0],
            "source_vocab_size": None if is_tied else rows[0][0],
            "tied_embeddings": is_tied,
            "d_model": rows[1][1],
            "num_heads": encoder.integer("attention_heads"),
            "ffn_dim": encoder.integer("feed_forward_num_hidden"),
            "encoder_layers": self.model.count("encoder.layers.{}.ff.ff1.weight"),
            "decoder_layers": self.model.count("decoder.layers.{}.ff.ff1.weight"),
            "positions": {"kind": "learned"},
            "max_source_tokens": rows[2][0],
            "max_target_tokens": rows[3][0],
            "norm": {"place": self._place(encoder), "epsilon": EPSILON},
            "activation": ACTIVATIONS.get(activation, "relu"),
            "gated_ffn": encoder.flag("use_glu", False),
            "imported": {"output_bias": True},
        }

    def _refuse_what_differs(self) -> None:
        self.options.only("weight_tying_type", *TYINGS)
        for side in ("source", "target"):
            embedding = self.options.section(f"config_embed_{side}")
            embedding.only("num_factors", 1)
            embedding.only("factor_configs", [])
        encoder, decoder = self.stacks.values()
        for name, supported in SUPPORTED.items():
            encoder.only(name, *supported)
            decoder.only(name, *supported)
        decoder.only("decoder_type", *DECODERS)
        shared = ("attention_heads", "feed_forward_num_hidden", "act_type", "use_glu")
        for name in (*shared, "preprocess_sequence", "postprocess_sequence"):
            if name in encoder:
                decoder.only(name, encoder.values[name])

    def _place(self, options: Options) -> str:
        """Return where sublayers are normalised."""
        before, after = (
            options.word(f"{name}process_sequence", default).replace("d", "")
            for name, default in (("pre", "n"), ("post", "dr"))
        )
        if (before, after) not in NORMS:
            options.refuse("preprocess_sequence", "is not supported with this")
            options.refuse("postprocess_sequence")
        return NORMS.get((before, after), "pre")

    def weights(self, config: Any) -> dict[str, WeightReader]:
        """Return readers of all weights by our names."""
        names: dict[Any, str | WeightSource] = {
            "embedding.weight": TARGET,
            "source_embedding.weight": SOURCE,
            "target_embedding.weight": TARGET,
            "output.weight": f"{OUTPUT}.weight",
            "output_bias": f"{OUTPUT}.bias",
        }
        for stack in STACKS:
            names[f"{stack}.positions.weight"] = f"{stack}.pos_embedding.weight"
            names[f"{stack}.norm"] = f"{stack}.final_process.layer_norm"
            for sublayer in SUBLAYERS[stack]:
                names |= self._sublayer(stack, sublayer, config)
        table = Table(names, ignored=IGNORED)
        return read_weights(transformer_shapes(config), table, self.tensors)

    def _sublayer(self, stack: str, sublayer: str, config: Any) -> dict[Any, str | WeightSource]:
        first = "recurrence" if self.has_ssru else "self_attention"
        ours = f"{stack}.layers.*.{OURS.get(sublayer, first)}"
        theirs = f"{stack}.layers.*.{sublayer}"
        place = "pre" if config.norm.place == "pre" else "post"
        norm: dict[Any, str | WeightSource] = {
            f"{ours}_norm": f"{stack}.layers.*.{place}_{sublayer}.layer_norm"
        }
        if ours.endswith("feed_forward"):
            up, gate = ("linear", "ff1") if config.gated_ffn else ("ff1", "linear")
            parts = {"up": up, "gate": gate, "down": "ff2"}
            return norm | {f"{ours}.{part}": f"{theirs}.{name}" for part, name in parts.items()}
        if ours.endswith("recurrence"):
            linear = {
                f"{ours}.forget": f"{theirs}.forget_gate",
                f"{ours}.input": f"{theirs}.linear",
            }
            return norm | linear
        return norm | _attention(ours, theirs, sublayer == "enc_attention", config.num_heads)


def _attention(
    ours: str, theirs: str, reads_source: bool, heads: int
) -> dict[Any, str | WeightSource]:
    """Return the names of an attention's four matrices; in self-attention three of them are one
    tensor.
    """
    query, key, value = (f"{ours}.{part}.weight" for part in ("query", "key", "value"))
    apart = partial(_apart, heads=heads)
    names: dict[Any, str | WeightSource] = {f"{ours}.output.weight": f"{theirs}.ff_out.weight"}
    for part in ("query", "key", "value", "output"):
        names[f"{ours}.{part}.bias"] = ZEROS
    if reads_source:
        names[query] = f"{theirs}.ff_q.weight"
        names[key, value] = TensorReference(f"{theirs}.ff_kv.weight", change=apart)
    else:
        names[query, key, value] = TensorReference(
            f"{theirs}.ff_in.weight", change=partial(_rest_apart, heads=heads)
        )
    return names


def _apart(weight: Array, heads: int) -> Array:
    """Separate keys and values, which alternate by head: first the keys of all heads, then the
    values.
    """
    by_head = weight.reshape(heads, 2, -1, weight.shape[1])
    return np.concatenate([by_head[:, i].reshape(-1, weight.shape[1]) for i in (0, 1)])


def _rest_apart(weight: Array, heads: int) -> Array:
    """Separate keys and values below the queries, which have as many rows as there are columns."""
    dim = weight.shape[1]
    return np.concatenate([weight[:dim], _apart(weight[dim:], heads)])
