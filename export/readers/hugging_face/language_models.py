"""Language models in Hugging Face folders: special tokens, the chat template, defaults."""

from pathlib import Path
from typing import Any

from export.readers.common.chat_templates import DEFAULT, merge_templates
from export.readers.common.decoders.family import LanguageFamily
from export.readers.common.options import Options, read_options
from export.readers.common.rope import rope_section
from export.readers.hugging_face.embedding_decoders import read_embedding_decoder
from export.readers.hugging_face.folder import CONFIG_FILE, UNTIED, Folder
from export.readers.hugging_face.generation_settings import (
    forced_eos,
    generation_defaults,
    logits_processors,
    refuse_unsupported,
    stop_ids,
)
from export.readers.hugging_face.sentence_transformers import MODULES_FILE
from export.readers.hugging_face.tokenizers import encode, token_ids, token_text
from models.checkpoint import TOKENIZER_FILE, Checkpoint
from models.conventions import Conventions
from models.files import read_file

TEMPLATE_FILE = "chat_template.jinja"
OLD_TEMPLATE_FILE = "chat_template.json"  # of multimodal models
MORE_TEMPLATES = "additional_chat_templates"  # a folder of files
MOST_TEMPLATES = 100
PARTIALLY_ROTATED = (
    "glm",
    "glm4",
    "gpt_neox",
    "phi",
    "phi3",
    "stablelm",
)  # heads; of others transformers has whole ones


def read_language_model(family: LanguageFamily, folder: Folder) -> Checkpoint:
    """Read a model that writes, or one that embeds texts where there are modules of Sentence
    Transformers. Raises CheckpointError with every problem.
    """
    if folder.config.get("model_type") not in PARTIALLY_ROTATED:
        for options in (folder.config, rope_section(folder.config)):
            options.only("partial_rotary_factor", 1.0)
    if (folder.path / MODULES_FILE).is_file():
        return read_embedding_decoder(family, folder)
    folder.config.only("is_causal", True)
    folder.check_head("ForCausalLM", "LMHeadModel")
    stop = _name_special_tokens(folder)
    refuse_unsupported(folder.defaults)
    folder.defaults.only("forced_bos_token_id")
    config: Any = folder.make_config(family.configure(folder.config))
    if config.tied_embeddings and family.has_own_output(folder.config, config, folder.tensors):
        folder.notes.append(UNTIED.format(file=CONFIG_FILE))
        config = config.model_copy(update={"tied_embeddings": False})
    weights = family.weights(folder.config, config, folder.tensors)
    stop = stop or (config.eos_id,)
    conventions = Conventions(
        prompt_prefix=prompt_prefix(folder, config.bos_id),
        stop=stop,
        forced_eos=forced_eos(folder.defaults, stop),
        chat_template=_read_chat_template(folder),
        generation=_defaults(folder.defaults, config.context_length),
        logits_processors=logits_processors(folder.defaults, config.vocab_size),
    )
    return folder.checkpoint(config, weights, conventions)


def _name_special_tokens(folder: Folder) -> tuple[int, ...]:
    """Return the tokens that end a text. The tokenizer's own beginning and end come first in the
    configuration: they are what chat templates write.
    """
    vocab_size = folder.config.integer("vocab_size")
    stop = stop_ids(folder, vocab_size)
    if stop:
        folder.config.values["eos_token_id"] = [*stop]
    if folder.tokenizers is not None:
        ids = token_ids(folder.tokenizers.source)
        begin = ids.get(token_text(folder.tokenizer.get("bos_token")) or "", vocab_size)
        if begin < vocab_size:
            folder.config.values["bos_token_id"] = begin
    return stop


def _defaults(options: Options, context_length: int) -> dict[str, Any]:
    """Return the defaults of requests. `min_length` and `max_length` count the prompt too, which is
    not supported; they have no effect if they are 0 or as long as the context.
    """
    if options.values.get("min_length") == 0:
        options.use("min_length")
    length = options.values.get("max_length")
    if isinstance(length, int) and length >= context_length:
        options.use("max_length")
    return generation_defaults(options)


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


def _read_chat_template(folder: Folder) -> str | None:
    """Read the template, in Jinja; None without one. Files of templates count before others."""
    of_pictures = read_options(folder.path / OLD_TEMPLATE_FILE, folder.problems)
    templates = (
        _read_template_files(folder.path)
        or _named_templates(folder.tokenizer)
        or _named_templates(of_pictures)
    )
    return merge_templates(templates, folder.notes)


def _read_template_files(folder: Path) -> dict[str, str]:
    paths = sorted((folder / MORE_TEMPLATES).glob("*.jinja"))[:MOST_TEMPLATES]
    named = {path.stem: path for path in paths}
    if (path := folder / TEMPLATE_FILE).is_file():
        named[DEFAULT] = path
    return {name: read_file(path).decode(errors="replace") for name, path in named.items()}


def _named_templates(options: Options) -> dict[str, str]:
    template = options.get("chat_template")
    if isinstance(template, str):
        return {DEFAULT: template}
    several = template if isinstance(template, list) else []
    named = (
        (entry.get("name"), entry.get("template")) for entry in several if isinstance(entry, dict)
    )
    return {name: text for name, text in named if isinstance(name, str) and isinstance(text, str)}
