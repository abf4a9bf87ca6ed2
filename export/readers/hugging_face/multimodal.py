"""Folders of models that read pictures, too: the language model in them is read, and only that."""

import re
from dataclasses import replace
from typing import Any

from export.readers.common.options import Options
from export.readers.common.weights import StoredTensors
from export.readers.hugging_face.folder import CONFIG_FILE, Folder

# model_type -> what `text_config` need not say
MULTIMODAL: dict[str, dict[str, Any]] = {
    "gemma3": {
        "model_type": "gemma3_text",
        "vocab_size": 262_208,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "max_position_embeddings": 131_072,
        "bos_token_id": 2,
        "eos_token_id": 1,
        "pad_token_id": 0,
        "tie_word_embeddings": True,
    },
    "mistral3": {
        "model_type": "mistral",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "tie_word_embeddings": False,
    },
}
OF_THE_WHOLE = ("eos_token_id", "tie_word_embeddings")  # rather than in `text_config`
OF_TEXTS = re.compile(r"(model\.)?language_model\.(model\.)?")
OF_PICTURES = re.compile(r"(model\.)?(vision_tower|multi_modal_projector)\..+")
KEYS_OF_PICTURES = re.compile(
    r"vision_config|(image|boi|eoi)_token_(index|id)|mm_tokens_per_image|multimodal_projector_bias"
    r"|projector_hidden_act|spatial_merge_size|vision_feature_layer"
)
LEFT_OUT = "the part that reads pictures is left out: {count} tensors, and of config.json {names}"


def extract_language_model(folder: Folder) -> Folder:
    """Return the folder of a multimodal model as one of its language model."""
    folder.check_head("ForConditionalGeneration")
    config = folder.config
    names = [name for name in config.values if KEYS_OF_PICTURES.fullmatch(name)]
    inner = ("architectures", "model_type", "text_config", *names)
    outer = {name: value for name, value in config.values.items() if name not in inner}
    whole = {name: outer[name] for name in OF_THE_WHOLE if name in outer}
    config.section("text_config")  # which must be an object
    text = config.values.get("text_config")
    defaults = MULTIMODAL[config.word("model_type")]
    values = defaults | outer | (text if isinstance(text, dict) else {}) | whole
    stored = folder.tensors.stored
    texts = {
        text_name(name): tensor for name, tensor in stored.items() if not OF_PICTURES.match(name)
    }
    note = LEFT_OUT.format(count=len(stored) - len(texts), names=", ".join(names) or "nothing")
    return replace(
        folder,
        config=Options(CONFIG_FILE, values, folder.problems),
        tensors=StoredTensors(texts, folder.problems),
        notes=[*folder.notes, note],
    )


def text_name(name: str) -> str:
    """Return the name that a tensor has where there is the language model alone."""
    short = OF_TEXTS.sub("", name)
    return short if short == name or short.startswith("lm_head.") else f"model.{short}"
