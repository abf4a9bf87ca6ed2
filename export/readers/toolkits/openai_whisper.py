"""Checkpoints of openai/whisper, such as tiny.en.pt.

    {"dims": sizes, "model_state_dict": weights}

The vocabulary is a part of its Python package: `tokenizer.json` of the same model on the Hugging
Face hub must lie beside the checkpoint.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from export.readers.common.openai_whisper import SIZES, OpenAIWhisper
from export.readers.common.pieces import TokenizerError, using_library
from export.readers.common.torch_files import LazyArray
from export.readers.common.whisper import add_times
from models.checkpoint import TOKENIZER_FILE, Checkpoint, CheckpointError
from models.files import read_file
from models.safetensors import Stored


def read_checkpoint(path: Path, tree: Mapping[str, Any]) -> Checkpoint:
    """Return the model of an unpickled checkpoint. Raises CheckpointError with every problem."""
    sizes, weights = (
        part if isinstance(part := tree[name], dict) else {}
        for name in ("dims", "model_state_dict")
    )
    tensors = {
        str(name): Stored(tensor.kind, tensor.shape, tensor.read)
        for name, tensor in weights.items()
        if isinstance(tensor, LazyArray)
    }
    sizes = {name: size for name, size in sizes.items() if name in SIZES}
    num_times = sizes["n_audio_ctx"] + 1 if isinstance(sizes.get("n_audio_ctx"), int) else 0
    try:
        tokenizer = add_times(read_file(path.parent / TOKENIZER_FILE), num_times)
        with using_library(f"{TOKENIZER_FILE} cannot be read"):
            ids: dict[str, int] = Tokenizer.from_buffer(tokenizer).get_vocab(True)
    except FileNotFoundError:
        message = f"checkpoints of openai/whisper hold no vocabulary: put {TOKENIZER_FILE} of"
        message = f"{message} openai/whisper-{path.stem} on the Hugging Face hub beside it"
        raise CheckpointError(path, [message]) from None
    except OSError as error:
        message = f"{TOKENIZER_FILE} cannot be read: {error.strerror}"
        raise CheckpointError(path, [message]) from None
    except TokenizerError as error:
        raise CheckpointError(path, error.problems) from None
    whisper = OpenAIWhisper(path, sizes, tensors)
    return whisper.read_checkpoint(tokenizer, ids, "checkpoint of openai/whisper")
