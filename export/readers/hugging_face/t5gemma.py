"""T5Gemma (Zhang et al. 2025): an encoder and a decoder with the layers of Gemma 2.

The sides may have different sizes, but one kind of layers. The encoder's window reaches as far to
each side as `sliding_window` says; the decoder's counts the token itself. Tokenizers put <bos>
before a source, and nothing after it.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from export.readers.common.decoders.gemma import configure_gemma2, plus_one
from export.readers.common.options import Options
from export.readers.common.shapes import Shapes, attention, gated, linears, norms, repeated
from export.readers.common.weights import Change, Held, Table, read_weights, times
from export.readers.hugging_face.folder import CONFIG_FILE, KEYS, OF_CONFIG, UNTIED, Folder
from export.readers.hugging_face.sentence_transformers import read_ends
from export.readers.hugging_face.translators import Decoding, codes
from models.checkpoint import Checkpoint

DEFAULTS = {  # of what all files say
    "bos_token_id": 2,
    "eos_token_id": 1,
    "max_position_embeddings": 8192,
    "num_key_value_heads": 4,
    "pad_token_id": 0,
    "vocab_size": 256_000,
}
OF_THE_DECODER = ("bos_token_id", "eos_token_id", "pad_token_id", "vocab_size")
SIZES = ("d_model", "num_heads", "num_kv_heads", "head_dim", "ffn_dim")
ALIKE = {  # on both sides, with the keys that say it
    "activation": "hidden_activation",
    "attention_cap": "attn_logit_softcapping",
    "norm_epsilon": "rms_norm_eps",
    "rotary_frequencies": "rope_parameters",
    "rotary_magnitude": "rope_parameters",
    "vocab_size": "vocab_size",
}
TABLE, OUTPUT = "model.decoder.embed_tokens", "lm_head.out_proj"
ATTENTIONS = {
    "encoder": {"attention": "self_attn"},
    "decoder": {"self_attention": "self_attn", "cross_attention": "cross_attn"},
}
PARTS = {"query": "q", "key": "k", "value": "v", "output": "o"}
NORMS = {"encoder": ("_norm", "_output_norm"), "decoder": ("_norm.input", "_norm.output")}
NO_CHAT = (
    "its chat template is not used: a source is read as it is, without the turns of a conversation,"
    " which models with a source cannot have here"
)
NEEDLESS = (r".*rotary_emb\.inv_freq",)


def read(folder: Folder) -> Checkpoint:
    """Raises CheckpointError with every problem."""
    folder.check_head("ForConditionalGeneration")
    if "chat_template" in folder.tokenizer or (folder.path / "chat_template.jinja").is_file():
        folder.notes.append(NO_CHAT)
    sections = {stack: _section(folder, stack) for stack in ("encoder", "decoder")}
    of_decoder = sections["decoder"].values
    folder.config.default_to(**{name: of_decoder[name] for name in OF_THE_DECODER})
    decoding = Decoding(folder, default_start="bos_token_id")
    found = {stack: _options(section) for stack, section in sections.items()}
    _check_alike(sections["decoder"], found)
    config: Any = folder.configured(
        _configuration(found)
        | decoding.special_tokens
        | {"tied_embeddings": _is_tied(folder), "pad_id": folder.config.integer("pad_token_id")}
        | {"source_languages": codes(()), "target_languages": codes(())}
    )
    weights = read_weights(_shapes(config), _table(config, sections), folder.tensors)
    ends = read_ends(folder)
    conventions = decoding.conventions(decoding.prompt, source_prefix=ends.prefix)
    return folder.checkpoint(config, weights, replace(conventions, source_suffix=ends.suffix))


def _section(folder: Folder, stack: str) -> Options:
    section = folder.config.section(stack)
    section.default_to(**DEFAULTS)
    section.only("attention_bias", False)
    section.use(*(name for name in section.values if name in KEYS or OF_CONFIG.fullmatch(name)))
    return section


def _options(section: Options) -> dict[str, Any]:
    """Read a side as Gemma 2, options of `imported` beside the others."""
    found = configure_gemma2(section)
    return found.pop("imported") | found


def _check_alike(decoder: Options, found: dict[str, dict[str, Any]]) -> None:
    for ours, theirs in ALIKE.items():
        if found["encoder"].get(ours) != found["decoder"].get(ours):
            decoder.refuse(theirs, "must be that of the encoder")


def _configuration(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    encoder, decoder = found["encoder"], found["decoder"]
    return {
        "architecture": "rotary-encoder-decoder",
        "vocab_size": decoder["vocab_size"],
        "encoder_layers": encoder["num_layers"],
        "encoder": {name: encoder[name] for name in SIZES} | _window(encoder, one_more=1),
        "decoder_layers": decoder["num_layers"],
        **{name: decoder[name] for name in (*SIZES, "activation")},
        **_window(decoder),
        "max_source_tokens": encoder["context_length"],
        "max_target_tokens": decoder["context_length"],
        "rotation": {
            "frequencies": decoder["rotary_frequencies"],
            "magnitude": decoder["rotary_magnitude"],
        },
        "norm": {"epsilon": decoder["norm_epsilon"]},
        "attention_cap": decoder.get("attention_cap"),
        "logit_cap": decoder.get("logit_cap"),
    }


def _window(side: dict[str, Any], one_more: int = 0) -> dict[str, Any]:
    without = side.get("layers_without_window", range(side["num_layers"]))
    layers = [layer for layer in range(side["num_layers"]) if layer not in without]
    return {"window": {"size": side["window"] + one_more, "layers": layers} if layers else None}


def _is_tied(folder: Folder) -> bool:
    """If an output table is stored with other numbers, it is used, as in transformers 5."""
    is_tied = folder.config.flag("tie_word_embeddings", True)
    if is_tied and folder.tensors.differ(f"{TABLE}.weight", f"{OUTPUT}.weight"):
        note = UNTIED.format(file=CONFIG_FILE).replace("lm_head", OUTPUT)
        folder.notes.append(note)
        return False
    return is_tied


def _shapes(config: Any) -> Shapes:
    """Return all weights."""
    tables = ("embedding",) if config.tied_embeddings else ("target_embedding", "output")
    found: Shapes = {f"{name}.weight": (config.vocab_size, config.d_model) for name in tables}
    found["encoder.embedding.weight"] = (config.vocab_size, config.encoder.d_model)
    found |= repeated("encoder.layers", config.encoder_layers, _layer("encoder", config))
    found |= repeated("decoder.layers", config.decoder_layers, _layer("decoder", config))
    found |= norms(["encoder.norm"], config.encoder.d_model, bias=False)
    return found | norms(["decoder.norm"], config.d_model, bias=False)


def _layer(stack: str, config: Any) -> Shapes:
    """Return the weights of a layer. Cross-attention's keys and values are made of the source."""
    side = config.source_encoder if stack == "encoder" else config
    dim, matrices = side.d_model, gated("feed_forward", side.d_model, side.ffn_dim)
    for name in ATTENTIONS[stack]:
        matrices |= attention(name, dim, side.num_heads, side.kv_heads, side.head_size)
    if stack == "decoder":
        for name in ("cross_attention.key", "cross_attention.value"):
            matrices[name] = (matrices[name][0], config.encoder.d_model)
    sublayers = (*ATTENTIONS[stack], "feed_forward")
    names = [f"{sublayer}{end}" for sublayer in sublayers for end in NORMS[stack]]
    return linears(matrices, bias=False) | norms(names, dim, bias=False)


def _table(config: Any, sections: Mapping[str, Options]) -> Table:
    """Norms add 1 to their weights. Query weights are scaled where scores are not divided by
    sqrt(head_size), and so are the encoder's embeddings.
    """
    names: dict[str, Any] = {
        "embedding": Held((TABLE, OUTPUT, TABLE)),
        "target_embedding": TABLE,
        "output": OUTPUT,
        "encoder.embedding": "model.encoder.embed_tokens",
    }
    changes: dict[str, Change] = {"encoder.embedding": times(math.sqrt(config.encoder.d_model))}
    for stack, side in (("encoder", config.source_encoder), ("decoder", config)):
        scalar = sections[stack].positive("query_pre_attn_scalar", 256)
        scale = times(math.sqrt(side.head_size / scalar))
        changes |= {f"{stack}.layers.*.{name}.query": scale for name in ATTENTIONS[stack]}
        own_norms = _norms(stack)
        changes |= dict.fromkeys(own_norms, plus_one)
        names |= own_norms | _matrices(stack)
    return Table(names, changes, NEEDLESS, prefix="model.")


def _norms(stack: str) -> dict[str, str]:
    ours, theirs = f"{stack}.layers.*", f"model.{stack}.layers.*"
    found = {f"{stack}.norm": f"model.{stack}.norm"}
    before, after = NORMS[stack]
    for name, kind in {**ATTENTIONS[stack], "feed_forward": "feedforward"}.items():
        found[f"{ours}.{name}{before}"] = f"{theirs}.pre_{kind}_layernorm"
        found[f"{ours}.{name}{after}"] = f"{theirs}.post_{kind}_layernorm"
    return found


def _matrices(stack: str) -> dict[str, str]:
    ours, theirs = f"{stack}.layers.*", f"model.{stack}.layers.*"
    dense = ("gate", "up", "down")
    return {f"{ours}.feed_forward.{part}": f"{theirs}.mlp.{part}_proj" for part in dense} | {
        f"{ours}.{name}.{part}": f"{theirs}.{kind}.{letter}_proj"
        for name, kind in ATTENTIONS[stack].items()
        for part, letter in PARTS.items()
    }
