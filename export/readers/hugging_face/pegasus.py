"""PEGASUS (Zhang et al. 2020): pre-norm stacks with sinusoids, trained to write missing sentences.

It knows no languages: what it was trained to do, to summarise or to paraphrase, it does to every
text.
"""

from typing import Any

from export.readers.common.options import merge_options
from export.readers.common.weights import Computed, Names
from export.readers.hugging_face.bart import POSITIONS
from export.readers.hugging_face.folder import Folder
from export.readers.hugging_face.translators import DecoderTokens, output_bias, sizes, weights
from models.checkpoint import UNKNOWN_LANGUAGE, Checkpoint

FORCED_EOS = 1  # where older files do not say
FIXED: dict[str, Any] = {  # in older files; the architecture has nothing else
    "add_bias_logits": False,
    "add_final_layer_norm": True,
    "force_bos_token_to_be_generated": False,
    "normalize_before": True,
    "normalize_embedding": False,
    "static_position_embeddings": True,
}


def read_pegasus(folder: Folder) -> Checkpoint:
    options = folder.config
    for name, value in FIXED.items():
        options.only(name, value)
    options.default_to(forced_eos_token_id=FORCED_EOS)
    folder.check_head("ForConditionalGeneration")
    decoding = DecoderTokens(folder, default_start="pad_token_id")
    bias = output_bias(folder.tensors, options.integer("vocab_size"))
    config: Any = folder.configured(
        merge_options(
            sizes(folder, default_activation="gelu", scales=False),
            decoding.special_tokens,
            {"source_languages": [UNKNOWN_LANGUAGE], "target_languages": [UNKNOWN_LANGUAGE]},
            {"imported": {"output_bias": bias is not None}},
        )
    )
    made: Names = {} if bias is None else {"output_bias": Computed(lambda _: bias())}
    found = weights(config, folder.tensors, {**POSITIONS, **made})
    return folder.checkpoint(config, found, decoding.conventions(decoding.prompt))
