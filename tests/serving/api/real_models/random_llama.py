"""A tiny random model as people have theirs: a folder of `transformers`, and our bundle of it."""

import json
from pathlib import Path

from transformers import PreTrainedModel

from export.bundling.writer import export_checkpoint
from export.readers.hugging_face.families import read_checkpoint
from serving.bundle.manifest import Precision
from tests.export.readers.hugging_face.language_models import random_model, save

NAME = "random-llama"
CONTEXT = 128
VOCAB_SIZE = 259  # no ids without a token, which are never generated here
_TOKENIZER = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "pad_token": "<pad>",
}


def make_llama(folder: Path) -> tuple[PreTrainedModel, Path, Path]:
    """The model, the folder it lies in, and its bundle."""
    model = random_model("smollm2", vocab_size=VOCAB_SIZE, max_position_embeddings=CONTEXT)
    theirs = save(model, folder / "theirs")
    (theirs / "tokenizer_config.json").write_text(json.dumps(_TOKENIZER))
    export_checkpoint(read_checkpoint(theirs), folder / NAME, Precision.FP32, NAME)
    return model, theirs, folder / NAME
