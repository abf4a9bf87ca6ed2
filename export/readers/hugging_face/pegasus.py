"""PEGASUS (Zhang et al. 2020): pre-norm stacks with sinusoids, trained to write missing sentences.

It knows no languages: what it was trained to do, to summarise or to paraphrase, it does to every
text.
"""

from export.readers.hugging_face.bart_family import (
    NO_LANGUAGES,
    VASWANI_POSITIONS,
    BartFamily,
    read_decoding,
    read_stacks,
)
from export.readers.hugging_face.folder import Folder
from models.checkpoint import Checkpoint

PEGASUS = BartFamily(
    heads=("ForConditionalGeneration",),
    fixed={
        "add_bias_logits": False,
        "add_final_layer_norm": True,
        "force_bos_token_to_be_generated": False,
        "normalize_before": True,
        "normalize_embedding": False,
        "static_position_embeddings": True,
    },
    default_start="pad_token_id",
    forced_eos=1,
    norm_place="pre",
    positions=lambda _: VASWANI_POSITIONS,
)


def read_pegasus(folder: Folder) -> Checkpoint:
    decoding = read_decoding(PEGASUS, folder)
    conventions = decoding.conventions(decoding.prompt)
    return read_stacks(PEGASUS, folder, decoding, conventions, NO_LANGUAGES)
