"""NomicBERT (Nussbaum et al. 2024), whose files are in the words of transformers or of GPT-2."""

from collections.abc import Mapping
from typing import Any

from export.readers.common.decoders.family import QUERY_KEY_VALUE, head_size
from export.readers.common.options import Options
from export.readers.common.rope import rope_section
from export.readers.common.shapes import read_activation
from export.readers.common.weights import Names, Table
from export.readers.hugging_face.rotary_encoders import RotaryFamily, read_rotation, read_sizes

NOMIC_NAMES: Names = {
    "embedding": "nomic_bert.embeddings.word_embeddings",
    "types": "nomic_bert.embeddings.token_type_embeddings",
    "embedding_norm": "nomic_bert.emb_ln",
    "layers.*.attention_norm": "nomic_bert.encoder.layers.*.norm1",
    "layers.*.feed_forward_norm": "nomic_bert.encoder.layers.*.norm2",
    QUERY_KEY_VALUE: "nomic_bert.encoder.layers.*.attn.Wqkv",
    "layers.*.attention.output": "nomic_bert.encoder.layers.*.attn.out_proj",
    "layers.*.feed_forward.up": "nomic_bert.encoder.layers.*.mlp.fc11",
    "layers.*.feed_forward.gate": "nomic_bert.encoder.layers.*.mlp.fc12",
    "layers.*.feed_forward.down": "nomic_bert.encoder.layers.*.mlp.fc2",
    "head.dense.0.linear": "nomic_bert.pooler.dense",
    "head.labels": "classifier",
}
AFTER_GPT2 = {  # names in its authors' files, by those of transformers
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
    "layer_norm_eps": "layer_norm_epsilon",
}
UNSAID: Mapping[str, Any] = {  # what these files need not say
    "activation_function": "gelu_new",
    "mlp_fc1_bias": True,
    "mlp_fc2_bias": True,
    "qkv_proj_bias": True,
    "rotary_emb_fraction": 0.0,
}
ALONE: Mapping[str, Any] = {  # what their options must be
    "activation_function": "swiglu",
    "causal": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "moe_every_n_layers": 0,
    "parallel_block": False,
    "prenorm": False,
    "qkv_proj_bias": False,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "use_rms_norm": False,
}
OF_KERNELS = (
    *("dense_seq_output", "fused_bias_fc", "fused_dropout_add_ln", "last_layer_subset"),
    *("max_trained_positions", "pad_vocab_size_multiple", "parallel_block_tied_norm"),
    *("scale_attn_by_inverse_layer_idx", "scale_attn_weights", "use_flash_attn", "use_xentropy"),
)


def configure_nomic_bert(options: Options) -> dict[str, Any]:
    if "n_embd" in options:
        _read_after_gpt2(options)
    options.default_to(max_position_embeddings=2048, pad_token_id=0)
    rope = rope_section(options)
    theta = rope.positive("rope_theta", options.positive("rotary_emb_base", 1000.0))
    return {
        **read_sizes(options),
        "head_dim": head_size(options),
        "num_types": options.integer("type_vocab_size", 2),
        "rotation": read_rotation(options, rope, theta),
        "norm": {"place": "post", "epsilon": options.positive("layer_norm_eps", 1e-12)},
        "activation": read_activation(options, "hidden_act", "silu"),
    }


def _read_after_gpt2(options: Options) -> None:
    """Read the names of its authors' code. A dynamic scaling changes texts only that are longer
    than those it was trained on, which are the limit then.
    """
    options.default_to(**{ours: options.get(theirs) for ours, theirs in AFTER_GPT2.items()})
    options.default_to(**UNSAID)
    for name, value in ALONE.items():
        options.only(name, value)
    options.use(*OF_KERNELS)
    if "rotary_scaling_factor" in options:
        longest = options.integer("max_trained_positions", 2048)
        positions = min(options.integer("max_position_embeddings"), longest)
        options.values["max_position_embeddings"] = positions


def nomic_bert_table(options: Options) -> Table:
    ignored = (r"(\w+\.)?pooler\..*", r"cls\..*", r".*rotary_emb\.inv_freq")
    return Table(NOMIC_NAMES, ignored=ignored, prefix="nomic_bert.")


def classify_nomic_bert(options: Options) -> tuple[str, dict[str, Any]]:
    return "cls", {"dim": options.integer("hidden_size"), "activation": "tanh"}


NOMIC_BERT = RotaryFamily(configure_nomic_bert, nomic_bert_table, classify_nomic_bert)
