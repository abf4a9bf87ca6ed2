"""Reads language models of Llama's shape that embed texts, by the modules of Sentence Transformers
beside them: Qwen3-Embedding, EmbeddingGemma and others.
"""

from typing import Any

from export.readers.common.decoders.family import LanguageFamily
from export.readers.common.rope import Rotary
from export.readers.common.weights import apply_change, scale_by
from export.readers.hugging_face.encoders import text_conventions
from export.readers.hugging_face.folder import BASE_MODEL, Folder
from export.readers.hugging_face.rotary_encoders import read_parts, rotation
from export.readers.hugging_face.sentence_transformers import read_ends
from models.architectures.llama.config import LlamaConfig, LlamaImports
from models.checkpoint import TOKENIZER_FILE, Checkpoint

BIDIRECTIONAL = "use_bidirectional_attention"
NOT_IN_ENCODERS = {  # options of Llama's layers, with keys of config.json that may ask for them
    "attention_sinks": "model_type",
    "experts": "num_experts_per_tok",
    "gated_ffn": "model_type",
    "input_norms": "model_type",
    "layers_without_rotation": "no_rope_layers",
    "qk_norm_after_rotation": "model_type",
    "qk_norm_spans_heads": "model_type",
    "query_growth": "rope_parameters",
}


def read_embedding_decoder(family: LanguageFamily, folder: Folder) -> Checkpoint:
    """Raise CheckpointError with every problem."""
    parts = read_parts(folder, read_ends)
    folder, options = parts.folder, parts.folder.config
    _check(folder)
    is_causal = _reads_causally(folder)
    llama_values = family.configure(options)
    if llama_values["architecture"] != "llama":
        options.refuse("model_type", "embeds no texts here; models of Llama's shape do")
        folder.fail()
    llama: Any = folder.make_config({**llama_values, "tied_embeddings": True})
    _check_layers(folder, llama)
    values = parts.values(llama.context_length, llama.pad_id)
    config = folder.make_config({**values, **_layers(folder, llama, is_causal)})
    weights = family.weights(options, llama, folder.tensors)
    scale = scale_by(llama.imported.embedding_scale)
    weights["embedding.weight"] = apply_change(weights["embedding.weight"], scale)
    conventions = text_conventions(parts.template, parts.text_options)
    return folder.checkpoint(config, weights | parts.modules.weights, conventions)


def _check(folder: Folder) -> None:
    for kind in folder.config.words("architectures"):
        if not kind.endswith((BASE_MODEL, "ForCausalLM")):
            folder.config.refuse("architectures", "is no language model")
    if not (folder.path / TOKENIZER_FILE).is_file():
        folder.problems.append(f"{TOKENIZER_FILE} is missing: it says how a text ends")


def _reads_causally(folder: Folder) -> bool:
    """Return whether tokens attend to what comes before only. Gemma 3 has an option for that, which
    its reader as a language model refuses.
    """
    options, is_bidirectional = folder.config, False
    if options.get("model_type") == "gemma3_text":
        is_bidirectional = options.flag(BIDIRECTIONAL, False)
        options.values.pop(BIDIRECTIONAL, None)
    return options.flag("is_causal", True) and not is_bidirectional


def _check_layers(folder: Folder, llama: LlamaConfig) -> None:
    """Refuse what encoders' layers cannot do, and a scale of logits that is in the last norm."""
    for option, key in NOT_IN_ENCODERS.items():
        if getattr(llama.imported, option) != LlamaImports.model_fields[option].default:
            reason = f"is not supported in models that embed texts ({option})"
            folder.config.refuse(key if key in folder.config else "model_type", reason)
    folder.config.only("logits_scaling", 1.0)


def _layers(folder: Folder, llama: LlamaConfig, is_causal: bool) -> dict[str, Any]:
    """Return the options of our layers that are those of Llama's."""
    imported = llama.imported
    return {
        "architecture": "rotary-encoder",
        **llama.model_dump(include={*SAME}),
        "causal": is_causal,
        "rotation": rotation(Rotary(llama.frequencies, imported.rotary_magnitude)),
        "window": _window(folder, llama, is_causal),
        "norm": {"kind": "rms", "epsilon": llama.norm_epsilon},
        "embedding_norm": False,
        "imported": imported.model_dump(include={*SAME_IMPORTS}),
    }


SAME = (
    *("vocab_size", "d_model", "num_layers", "num_heads", "num_kv_heads", "head_dim", "ffn_dim"),
    "activation",
)
SAME_IMPORTS = ("attention_bias", "attention_cap", "ffn_bias", "qk_norm", "sandwich_norms")


def _window(folder: Folder, llama: LlamaConfig, is_causal: bool) -> dict[str, Any] | None:
    """Return the window of those layers that have one. Gemma 3 cuts one that looks both ways into
    halves. Other models have no such windows.
    """
    layers = [i for i in range(llama.num_layers) if llama.window_of(i) is not None]
    if not layers:
        return None
    size = llama.window
    if not is_causal:
        folder.config.only("is_causal", True)
        size = folder.config.integer("sliding_window") // 2 + 1
    table = rotation(Rotary(*llama.table_of(layers[0])))
    return {"size": size, "layers": layers, "rotation": table}
