"""Folders of Sockeye 3 (Hieber et al. 2022): Transformers, with SSRUs in the decoder or not.

    config  params.best  vocab.src.0.json  vocab.trg.0.json

Sources end with </s>; targets begin with <s> and end before </s>. Sockeye 1 and 2 kept their
weights in files of MXNet, which are recognised by name and refused.

The models are those of sockeye/transformer.py, layers.py and model.py: attention has no biases, and
keys and values are in one matrix, head by head.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from export.readers.common.options import Options, read_yaml
from export.readers.common.shapes import STACKS, transformer_shapes
from export.readers.common.torch_files import is_torch_file, read_torch
from export.readers.common.weights import ZEROS, Names, TensorReference, WeightSource
from export.readers.toolkits.toolkit import Toolkit, ToolkitModel, ToolkitReader, Vocabularies
from models.checkpoint import Checkpoint, CheckpointError
from models.files import read_json
from models.safetensors import Array

CONFIG, PARAMETERS = "config", "params.best"
VOCABULARIES = {"source": "vocab.src.0.json", "target": "vocab.trg.0.json"}
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
PAD, UNK, BOS, EOS = range(len(SPECIAL))
SOURCE, TARGET = "embedding_source.embedding.weight", "embedding_target.embedding.weight"
OUTPUT = "output_layer"
# what happens before and after a sublayer, without dropout: its input added, normalisation
NORM_PLACES = {("n", "r"): "pre", ("", "rn"): "post"}
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish1": "swish"}
DECODERS = ("transformer", "ssru_transformer")
SUPPORTED: dict[str, tuple[Any, ...]] = {
    "weight_tying_type": ("none", "src_trg", "trg_softmax", "src_trg_softmax"),
    **{f"config_embed_{side}.num_factors": (1,) for side in VOCABULARIES},
    **{f"config_embed_{side}.factor_configs": ([],) for side in VOCABULARIES},
    **{
        f"config_{stack}.{name}": values
        for name, values in (
            ("use_lhuc", (False,)),
            ("block_prepended_cross_attention", (False,)),
            ("act_type", tuple(ACTIVATIONS)),
            ("positional_embedding_type", ("fixed", "learned")),
        )
        for stack in STACKS
    },
    "config_decoder.decoder_type": DECODERS,
}
ALIKE = (  # options that both sides must agree on
    "attention_heads",
    "feed_forward_num_hidden",
    "act_type",
    "use_glu",
    "preprocess_sequence",
    "postprocess_sequence",
)
EPSILON = 1e-6
SUBLAYERS = {
    "encoder": ("self_attention", "ff"),
    "decoder": ("autoregr_layer", "enc_attention", "ff"),
}
SUBLAYER_NAMES = {  # ours; an `autoregr_layer` is an SSRU or self-attention
    "ff": "feed_forward",
    "enc_attention": "cross_attention",
    "self_attention": "self_attention",
}


def can_read(source: Path) -> bool:
    """Return whether the source is a folder of Sockeye, or the parameters in one."""
    path = _find_file(source)
    return path.is_file() and (path.parent / CONFIG).is_file() and path.name.startswith("params.")


def _find_file(source: Path) -> Path:
    return source / PARAMETERS if source.is_dir() else source


def read_checkpoint(source: Path) -> Checkpoint:
    """Return the model, its weights not read yet. Raises CheckpointError with every problem."""
    path = _find_file(source)
    if not is_torch_file(path):
        message = (
            f"{path.name} is no file of torch: Sockeye 1 and 2 wrote MXNet's, which is not read"
        )
        raise CheckpointError(source, [message])
    problems: list[str] = []
    options = Options(CONFIG, read_yaml(path.parent / CONFIG, problems), problems)
    tree = read_torch(path)
    tensors = tree if isinstance(tree, dict) else {}
    return ToolkitReader(SOCKEYE, path, options, tensors, source).read_checkpoint()


def _read_vocabularies(reader: ToolkitReader) -> Vocabularies:
    sizes = {"source": reader.source_words, "target": reader.target_words}
    words = {side: _read_words(reader, VOCABULARIES[side], size) for side, size in sizes.items()}
    return Vocabularies(words, SPECIAL, SPECIAL[UNK], PAD, BOS, EOS, UNK, start=BOS)


def _read_words(reader: ToolkitReader, name: str, number: int) -> list[str]:
    """Return words by their ids; none, and a problem, if the file does not fit the model."""
    path, problems = reader.path.parent / name, reader.problems
    ids = reader.read_beside(path, lambda file: read_json(file) or {}, "parameters")
    if ids is None:
        return []
    expected = sorted(map(str, range(number)))
    if not isinstance(ids, dict) or sorted(map(str, ids.values())) != expected:
        problems.append(
            f"{path.name} does not number words from 0 to {number - 1}, as the model has"
        )
        return []
    words = sorted(ids, key=lambda word: int(ids[word]))
    if tuple(words[: len(SPECIAL)]) != SPECIAL:
        problems.append(f"{path.name} does not begin with {', '.join(SPECIAL)}")
        return []
    return words


def read_options(reader: ToolkitReader) -> dict[str, Any]:
    encoder, decoder = (reader.options.section(f"config_{stack}") for stack in STACKS)
    for name in ALIKE:
        if name in encoder:
            decoder.only(name, encoder.values[name])
    positions = reader.matrix_shapes(*(f"{stack}.pos_embedding.weight" for stack in STACKS))
    return {
        "architecture": "transformer-ssru" if _has_ssru(reader) else "transformer",
        "tied_embeddings": reader.options.word("weight_tying_type", "none") == "src_trg_softmax",
        "d_model": reader.dim,
        "num_heads": encoder.integer("attention_heads"),
        "ffn_dim": encoder.integer("feed_forward_num_hidden"),
        "encoder_layers": reader.count_layers("encoder.layers.{}.ff.ff1.weight"),
        "decoder_layers": reader.count_layers("decoder.layers.{}.ff.ff1.weight"),
        "positions": {"kind": "learned"},
        "max_source_tokens": positions[0][0],
        "max_target_tokens": positions[1][0],
        "norm": {"place": _read_norm_place(encoder), "epsilon": EPSILON},
        "activation": ACTIVATIONS.get(encoder.word("act_type", "relu"), "relu"),
        "gated_ffn": encoder.flag("use_glu", False),
        "imported": {"output_bias": True},
    }


def _has_ssru(reader: ToolkitReader) -> bool:
    decoder = reader.options.section("config_decoder")
    return decoder.word("decoder_type", DECODERS[0]) == DECODERS[1]


def _read_norm_place(options: Options) -> str:
    """Return where sublayers are normalised."""
    before, after = (
        options.word(f"{name}process_sequence", default).replace("d", "")
        for name, default in (("pre", "n"), ("post", "dr"))
    )
    if (before, after) not in NORM_PLACES:
        options.refuse("preprocess_sequence", "is not supported with this")
        options.refuse("postprocess_sequence")
    return NORM_PLACES.get((before, after), "pre")


def list_names(reader: ToolkitReader, config: Any) -> Names:
    names: dict[Any, str | WeightSource] = {
        "embedding.weight": TARGET,
        "source_embedding.weight": SOURCE,
        "target_embedding.weight": TARGET,
        "output.weight": f"{OUTPUT}.weight",
        "output_bias": f"{OUTPUT}.bias",
    }
    first = "recurrence" if _has_ssru(reader) else "self_attention"
    for stack in STACKS:
        names[f"{stack}.positions.weight"] = f"{stack}.pos_embedding.weight"
        names[f"{stack}.norm"] = f"{stack}.final_process.layer_norm"
        for sublayer in SUBLAYERS[stack]:
            ours = f"{stack}.layers.*.{SUBLAYER_NAMES.get(sublayer, first)}"
            names |= _sublayer_names(ours, stack, sublayer, config)
    return names


def _sublayer_names(
    ours: str, stack: str, sublayer: str, config: Any
) -> dict[Any, str | WeightSource]:
    theirs = f"{stack}.layers.*.{sublayer}"
    norm = f"{stack}.layers.*.{config.norm.place}_{sublayer}.layer_norm"
    if ours.endswith("feed_forward"):
        up, gate = ("linear", "ff1") if config.gated_ffn else ("ff1", "linear")
        return {
            f"{ours}_norm": norm,
            f"{ours}.up": f"{theirs}.{up}",
            f"{ours}.gate": f"{theirs}.{gate}",
            f"{ours}.down": f"{theirs}.ff2",
        }
    if ours.endswith("recurrence"):
        return {
            f"{ours}_norm": norm,
            f"{ours}.forget": f"{theirs}.forget_gate",
            f"{ours}.input": f"{theirs}.linear",
        }
    query, key, value = (f"{ours}.{part}.weight" for part in ("query", "key", "value"))
    names: dict[Any, str | WeightSource] = {
        f"{ours}_norm": norm,
        f"{ours}.output.weight": f"{theirs}.ff_out.weight",
        **{f"{ours}.{part}.bias": ZEROS for part in ("query", "key", "value", "output")},
    }
    if sublayer == "enc_attention":
        split = partial(_split_keys_values, heads=config.num_heads)
        names[query] = f"{theirs}.ff_q.weight"
        names[key, value] = TensorReference(f"{theirs}.ff_kv.weight", change=split)
    else:
        split = partial(_split_queries_keys_values, heads=config.num_heads)
        names[query, key, value] = TensorReference(f"{theirs}.ff_in.weight", change=split)
    return names


def _split_keys_values(weight: Array, heads: int) -> Array:
    """Separate keys and values, which alternate by head: first the keys of all heads, then the
    values.
    """
    by_head = weight.reshape(heads, 2, -1, weight.shape[1])
    return np.concatenate([by_head[:, i].reshape(-1, weight.shape[1]) for i in (0, 1)])


def _split_queries_keys_values(weight: Array, heads: int) -> Array:
    """Separate keys and values below the queries, which have as many rows as there are columns."""
    dim = weight.shape[1]
    return np.concatenate([weight[:dim], _split_keys_values(weight[dim:], heads)])


TRANSFORMER = ToolkitModel(
    {},
    read_options,
    transformer_shapes,
    list_names,
    ignored=(r"nvs\..*", r"length_ratio\..*", r".*\.kv_interleaved"),  # what makes Sockeye faster
)
SOCKEYE = Toolkit(
    "Sockeye",
    (SOURCE, TARGET),
    {"transformer": TRANSFORMER},
    lambda _: "transformer",
    _read_vocabularies,
    SUPPORTED,
)
