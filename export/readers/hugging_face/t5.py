"""T5 (Raffel et al. 2020), T5 1.1 and Flan-T5, mT5 (Xue et al. 2021), UMT5 (Chung et al. 2023),
MADLAD-400 (Kudugunta et al. 2023), LongT5 (Guo et al. 2022) with local attention.

Pre-norm layers with RMSNorm, no biases, relative positions of the first layer for all, scores that
are not divided by sqrt(head_dim): query weights are multiplied by it instead. Models that share
their embedding with the output divide what goes into that by sqrt(d_model): the last norm's weights
are divided instead. Version 1.1 has gated feed-forward layers and an output of its own.

Each layer of UMT5 has relative positions of its own. A source of MADLAD-400, which is a T5, begins
with its target's language. LongT5's encoder attends to near positions only, or also to sums of
blocks ("transient-global"), which is refused: no operator here makes such keys.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from export.readers.common.options import MOST_LAYERS, Options
from export.readers.common.shapes import ACTIVATIONS, read_activation, transformer_shapes
from export.readers.common.weights import (
    Merged,
    Names,
    Table,
    TensorReference,
    read_weights,
    scale_by,
)
from export.readers.hugging_face.folder import Folder
from export.readers.hugging_face.tokenizers import encode
from export.readers.hugging_face.translators import (
    MADLAD_TOKEN,
    Decoding,
    list_codes,
    read_language_tokens,
)
from models.checkpoint import UNKNOWN_LANGUAGE, Checkpoint
from models.conventions import AddedLanguageIds, Conventions

MAX_TOKENS = 512  # of source and target where nothing says how many: those that it was trained on
TRANSLATION = re.compile(r"translation_([a-z]+)_to_([a-z]+)")
CROSS = "EncDecAttention"
LOCAL_RADIUS = 127  # of LongT5, where its file does not say
QUERIES = (
    "encoder.layers.*.self_attention.query",
    "decoder.layers.*.self_attention.query",
    "decoder.layers.*.cross_attention.query",
)
PARTS = {"q": "query", "k": "key", "v": "value", "o": "output"}
PLAIN = {"wi": "up", "wo": "down"}
GATED = {"wi_0": "gate", "wi_1": "up", "wo": "down"}
TABLES = ("shared", "encoder.embed_tokens", "decoder.embed_tokens")  # one; files hold some names
SHARED = TensorReference((*TABLES, "shared"))
VOCABULARY: Names = {
    "embedding": SHARED,
    "source_embedding": SHARED,
    "target_embedding": SHARED,
    "output": "lm_head",
}
IGNORED = (
    r"(shared|(encoder|decoder)\.embed_tokens)\.weight",
    r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
)


def read_t5(folder: Folder) -> Checkpoint:
    options, tensors = folder.config, folder.tensors
    folder.check_head("ForConditionalGeneration", "WithLMHeadModel")
    decoding = Decoding(folder, default_start="pad_token_id")
    tasks = _translations(options)
    languages = read_language_tokens(folder, MADLAD_TOKEN)
    has_output = "lm_head.weight" in tensors
    for stack in ("encoder", "decoder"):
        if tensors.differ("shared.weight", name := f"{stack}.embed_tokens.weight"):
            folder.problems.append(f"{name} differs from shared.weight, which is not supported")
    config: Any = folder.make_config(
        _sizes(options)
        | _feed_forward(options)
        | decoding.special_tokens
        | _languages(tasks, languages)
        | {"tied_embeddings": not has_output}
    )
    weights = read_weights(transformer_shapes(config), _table(options, config), tensors)
    if languages:
        targets = {
            code: AddedLanguageIds(source_prefix=(token_id,))
            for code, token_id in languages.items()
        }
        conventions = decoding.conventions(decoding.prompt, targets=targets)
    else:
        conventions = _conventions(folder, decoding, tasks)
    return folder.checkpoint(config, weights, conventions)


def _sizes(options: Options) -> dict[str, Any]:
    num_layers = options.integer("num_layers", at_most=MOST_LAYERS)
    max_tokens = options.integer("n_positions", MAX_TOKENS)
    return {
        "architecture": "transformer",
        "vocab_size": options.integer("vocab_size"),
        "d_model": options.integer("d_model"),
        "num_heads": options.integer("num_heads"),
        "head_dim": options.integer("d_kv"),
        "ffn_dim": options.integer("d_ff"),
        "encoder_layers": num_layers,
        "decoder_layers": options.integer("num_decoder_layers", num_layers, MOST_LAYERS),
        "max_source_tokens": max_tokens,
        "max_target_tokens": max_tokens,
        "positions": {
            "kind": "relative",
            "num_buckets": options.integer("relative_attention_num_buckets", 32),
            "max_distance": options.integer("relative_attention_max_distance", 128),
        },
        "norm": {"kind": "rms", "epsilon": options.number("layer_norm_epsilon", 1e-6)},
        "imported": {"biases": False, "embedding_scale": 1.0} | _attention(options),
        "pad_id": options.integer("pad_token_id", 0),
    }


def _attention(options: Options) -> dict[str, Any]:
    """Read which positions have what biases."""
    options.use("scalable_attention")  # of UMT5's training
    if options.get("model_type") != "longt5":
        return {"layer_positions": options.get("model_type") == "umt5"}
    if options.word("encoder_attention_type", "local") != "local":
        options.refuse("encoder_attention_type", "is not supported: only local attention is")
    options.use("global_block_size")  # of the other type
    return {"encoder_window": options.integer("local_radius", LOCAL_RADIUS)}


def _feed_forward(options: Options) -> dict[str, Any]:
    """`feed_forward_proj` is an activation, or "gated-" and one; gated, gelu is its tanh form. In
    newer files `dense_act_fn` and `is_gated_act` come before it.
    """
    name, kind = "feed_forward_proj", options.get("model_type")
    word = options.word(name, "gated-gelu" if kind in ("mt5", "umt5") else "relu")
    gate, _, last = word.rpartition("-")
    if last not in ACTIVATIONS or gate not in ("", "gated"):
        options.refuse(name)
    usual = "gelu_new" if word == "gated-gelu" else last
    options.default_to(dense_act_fn=usual)
    activation = read_activation(options, "dense_act_fn", usual)
    is_gated = options.flag("is_gated_act", gate == "gated")
    return {"activation": activation, "gated_ffn": is_gated}


def _scales_output(options: Options) -> bool:
    """mT5 never does. T5 does where it shares its embedding, by older files' account of that."""
    shares = options.flag("tie_word_embeddings", True)
    is_mt5 = options.get("model_type") == "mt5"
    return not is_mt5 and options.flag("scale_decoder_outputs", shares)


def _table(options: Options, config: Any) -> Table:
    changes = dict.fromkeys(QUERIES, scale_by(math.sqrt(config.head_dim)))
    if _scales_output(options):
        changes["decoder.norm"] = scale_by(config.d_model**-0.5)
    names = {**VOCABULARY, **_stack("encoder", config), **_stack("decoder", config)}
    return Table(names, changes, IGNORED)


def _stack(stack: str, config: Any) -> Names:
    """Number a layer's parts as they do: attention to itself, in the decoder to the source, and
    feed-forward.
    """
    theirs, ours = f"{stack}.block.*.layer", f"{stack}.layers.*"
    is_local = stack == "encoder" and config.imported.encoder_window is not None
    attention = "LocalSelfAttention" if is_local else "SelfAttention"
    names: dict[str, Any] = {
        f"{stack}.positions.weight": _positions(stack, attention, config),
        f"{stack}.norm": f"{stack}.final_layer_norm",
    }
    parts = ((attention, "self_attention"), (CROSS, "cross_attention"))
    for number, (their_name, our_name) in enumerate(parts):
        names[f"{ours}.{our_name}_norm"] = f"{theirs}.{number}.layer_norm"
        for letter, part in PARTS.items():
            names[f"{ours}.{our_name}.{part}"] = f"{theirs}.{number}.{their_name}.{letter}"
    last = f"{theirs}.{2 if stack == 'decoder' else 1}"
    names[f"{ours}.feed_forward_norm"] = f"{last}.layer_norm"
    dense = GATED if config.gated_ffn else PLAIN
    return names | {
        f"{ours}.feed_forward.{name}": f"{last}.DenseReluDense.{wi}" for wi, name in dense.items()
    }


def _positions(stack: str, attention: str, config: Any) -> Merged:
    """Join the biases of all layers that have some, heads beside heads."""
    shape = config.positions.num_buckets, config.num_heads
    layers = range(config.num_biases(stack) // config.num_heads)
    name = f"{stack}.block.{{}}.layer.0.{attention}.relative_attention_bias.weight"
    return Merged(
        {name.format(layer): shape for layer in layers},
        lambda *biases: np.concatenate(biases, axis=1),
    )


def _translations(options: Options) -> dict[tuple[str, str], Options]:
    """Return the tasks of `task_specific_params` that translate from the first one's language, by
    source and target.
    """
    tasks = options.section("task_specific_params")
    matches = [match for name in tasks.values if (match := TRANSLATION.fullmatch(name))]
    return {
        (match[1], match[2]): tasks.section(match[0])
        for match in matches
        if match[1] == matches[0][1]
    }


def _languages(
    tasks: Mapping[tuple[str, str], Options], tokens: Mapping[str, int]
) -> dict[str, list[str]]:
    """ "und" takes a text as it is, with whatever task its writer puts before it. MADLAD-400 reads
    any of its languages.
    """
    if tokens:
        return {"source_languages": list_codes(tokens), "target_languages": list_codes(tokens)}
    sources, targets = ({pair[side]: None for pair in tasks} for side in (0, 1))
    return {
        "source_languages": [*sources, UNKNOWN_LANGUAGE],
        "target_languages": [*targets, UNKNOWN_LANGUAGE],
    }


def _conventions(
    folder: Folder, decoding: Decoding, tasks: Mapping[tuple[str, str], Options]
) -> Conventions:
    """Begin a task's sources with its words. Its other options count if they translate."""
    prefixes = {target: task.word("prefix", "") for (_, target), task in tasks.items()}
    settings = next(iter(tasks.values()), decoding.options)
    targets = {
        target: AddedLanguageIds(source_prefix=_encode(folder, prefix))
        for target, prefix in prefixes.items()
    }
    return decoding.conventions(decoding.prompt, options=settings, targets=targets)


def _encode(folder: Folder, text: str) -> tuple[int, ...]:
    """Without the space at its end: the text that follows begins with it."""
    if folder.tokenizers is None:
        return ()
    source = folder.tokenizers.source
    return tuple(encode(source, text.strip(), folder.problems, is_bare=True).ids)
