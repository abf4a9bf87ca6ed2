"""Reads a folder with a language model as a checkpoint, whatever the family."""

from export.readers.common.language_models.family import LanguageFamily
from export.readers.hugging_face.folder import Folder
from export.readers.hugging_face.generation import (
    forced_eos,
    generation_defaults,
    stop_ids,
)
from export.readers.hugging_face.tokenizers import encode
from models.conventions import Conventions
from models.storage.checkpoint import TOKENIZER_FILE, Checkpoint


def read_language_model(family: LanguageFamily, folder: Folder) -> Checkpoint:
    """Raises CheckpointError with every problem."""
    config = folder.configured(family.configure(folder.config))
    weights = family.weights(folder.config, config, folder.tensors)
    stop = stop_ids(folder.generation, folder.config) or (config.eos_id,)
    conventions = Conventions(
        prompt_prefix=prompt_prefix(folder, config.bos_id),
        stop=stop,
        forced_eos=forced_eos(folder.generation, stop),
        chat_template=folder.chat_template,
        generation=generation_defaults(folder.generation),
    )
    return folder.checkpoint(config, weights, conventions)


def prompt_prefix(folder: Folder, bos_id: int) -> tuple[int, ...]:
    """Read what its tokenizer puts before a text: the special tokens of the post-processor of
    `tokenizer.json`. Older folders have none and say whether <s> does; with sentencepiece it does.
    """
    if folder.tokenizers is None:
        return ()
    if not (folder.path / TOKENIZER_FILE).is_file():
        by_default = (folder.path / "tokenizer.model").is_file()
        return (bos_id,) if folder.tokenizer.flag("add_bos_token", by_default) else ()
    encoding = encode(folder.tokenizers.source, "a", folder.problems, is_bare=False)
    marks = encoding.special_tokens_mask
    first = marks.index(0) if 0 in marks else len(marks)
    return tuple(encoding.ids[:first])
