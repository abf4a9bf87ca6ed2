"""Tiny random bundles that bring along what imported models do: languages, defaults, templates."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models

from models.conventions import AddedLanguageIds
from serving.bundle.manifest import Precision
from tests.cache import export_cached
from tests.tiny import PICTURE_READER, SPECIAL_TOKENS, tiny_checkpoint

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
SAMPLED = {"temperature": 0.0, "max_new_tokens": 6}
SEARCHED = {"num_beams": 3, "length_penalty": 0.6}
# Ids of the byte tokenizer, here those of languages.
LANGUAGES = {
    "sources": {"eng_Latn": AddedLanguageIds((130,)), "fra_Latn": AddedLanguageIds((131,))},
    "targets": {
        "eng_Latn": AddedLanguageIds((), (), (130,)),
        "fra_Latn": AddedLanguageIds((), (), (131,)),
        "por_Latn": AddedLanguageIds((140,), (), (132,)),
    },
}


def imported_bundle(
    architecture: str, folder: Path, conventions: dict[str, Any], **changes: Any
) -> Path:
    """A bundle whose checkpoint has other conventions; changes: those of `tiny_checkpoint`."""
    checkpoint = tiny_checkpoint(architecture, folder / "checkpoint", **changes)
    own = replace(checkpoint.conventions, **conventions)
    name = f"imported-{architecture}"
    bundle = folder / name
    export_cached(replace(checkpoint, conventions=own), bundle, Precision.INT8, name)
    return bundle


def chatting_bundle(folder: Path) -> Path:
    conventions = {"chat_template": CHAT_TEMPLATE, "generation": SAMPLED}
    return imported_bundle("llama", folder, conventions, context_length=128)


def many_languages_bundle(folder: Path) -> Path:
    languages = {
        "source_languages": ["eng_Latn", "fra_Latn"],
        "target_languages": ["eng_Latn", "fra_Latn", "por_Latn"],
    }
    return imported_bundle(
        "transformer", folder, {**LANGUAGES, "generation": SEARCHED}, seed=7, **languages
    )


def captioning_bundle(folder: Path) -> Path:
    """A model that reads pictures. Its words are such as w4-7, of tokens w4 and -7."""
    checkpoint = tiny_checkpoint(PICTURE_READER, folder / "checkpoint")
    words = [f"-{i}" if i % 2 else f"Ġw{i}" for i in range(3, checkpoint.config.vocab_size)]
    tokens = [*SPECIAL_TOKENS, *words]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, []))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    generation = {"temperature": 0.0, "max_new_tokens": 12, "no_repeat_ngram_size": 1}
    conventions = replace(checkpoint.conventions, generation=generation)
    files = {**checkpoint.files, "tokenizer.json": tokenizer.to_str().encode()}
    made = replace(checkpoint, conventions=conventions, files=files)
    export_cached(made, folder / "captioner", Precision.INT8, "captioner")
    return folder / "captioner"
