"""Phi-1, Phi-1.5 and Phi-2 (Gunasekar et al. 2023, Li et al. 2023).

A GPT-NeoX whose sublayers share one norm and whose output has a bias.
"""

from typing import Any

from export.readers.hugging_face import gpt_neox, llama
from export.readers.hugging_face.decoder_only import Family, Placement
from export.readers.hugging_face.options import Options
from export.readers.hugging_face.rope import read_rotary, rope_section
from export.readers.hugging_face.tensors import Source, Tensors
from models.configs.language_models.gpt_neox import GPTNeoXConfig


def configure(config: Options) -> dict[str, Any]:
    config.only("qk_layernorm", False)
    config.only("tie_word_embeddings", False)
    found = gpt_neox.sizes(config, act="gelu_new")
    num_kv_heads = config.integer("num_key_value_heads", found["num_heads"])
    rotary = read_rotary(config, rope_section(config), llama.head_size(config), portion=0.5)
    return {**found, **rotary.options, "num_kv_heads": num_kv_heads, "output_bias": True}


def place(options: Options, config: GPTNeoXConfig, tensors: Tensors) -> dict[str, Source]:
    found = Placement(tensors.without("model."))
    d_model, shape = config.d_model, (config.vocab_size, config.d_model)
    found.take("embedding.weight", "model.embed_tokens.weight", *shape)
    found.layer_norm("norm", "model.final_layernorm", d_model)
    found.linear("output", "lm_head", *shape, bias=True)
    for layer in range(config.num_layers):
        theirs, ours = f"model.layers.{layer}", f"layers.{layer}"
        for name in ("attention_norm", "feed_forward_norm"):
            found.layer_norm(f"{ours}.{name}", f"{theirs}.input_layernorm", d_model)
        heads = {"query": config.num_heads, "key": config.kv_heads, "value": config.kv_heads}
        for part, count in heads.items():
            name, out = f"{theirs}.self_attn.{part[0]}_proj", count * config.head_size
            found.linear(f"{ours}.attention.{part}", name, out, d_model, bias=True)
        into, name = config.num_heads * config.head_size, f"{theirs}.self_attn.dense"
        found.linear(f"{ours}.attention.output", name, d_model, into, bias=True)
        sizes, name = (config.ffn_dim, d_model), f"{ours}.feed_forward"
        found.linear(f"{name}.up", f"{theirs}.mlp.fc1", *sizes, bias=True)
        found.linear(f"{name}.down", f"{theirs}.mlp.fc2", *sizes[::-1], bias=True)
    tensors.drop(llama.NEEDLESS)
    return found.weights


FAMILY = Family(configure, place)
