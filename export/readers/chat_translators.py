"""Chat models that translate: what asks them to, and between which languages.

TranslateGemma's template (Google 2026) takes the codes of both languages beside the text, and has a
table of all that it knows. HY-MT (Zheng et al. 2025) is asked in words. Other chat models translate
by a prompt that is given when they are exported.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from models.checkpoint import Checkpoint, CheckpointError
from models.configs.base import LanguageModelConfig

TRANSLATE_GEMMA = {
    "type": "text",
    "source_lang_code": "{source_code}",
    "target_lang_code": "{target_code}",
    "text": "{text}",
}
HY_MT = (
    "Translate the following segment into {target_language}, without additional explanation."
    "\n\n{text}"
)
HY_MT_LANGUAGES = (
    "ar bn bo cs de en es fa fr gu he hi id it ja kk km ko mn mr ms my nl pl pt ru ta te th tl tr"
    " ug uk ur vi yue zh zh-Hant"
)
_HY_MT_NAME = re.compile(r"\b(hunyuan|hy)[-_]?mt", re.IGNORECASE)
_ENTRY = re.compile(r"""["']([a-z]{2,3}(?:-[A-Z][a-z]{3})?)["']\s*:\s*["'][A-Z]""")  # no regions
NOTE = (
    "this chat model translates: it is served by the protocols of translation, and its"
    " conversations are texts to translate"
)


def recognise_translator(checkpoint: Checkpoint) -> Checkpoint:
    """Return a chat model that is known to translate as a translator, any other as it is."""
    template = checkpoint.conventions.chat_template or ""
    if "target_lang_code" in template and (codes := _ENTRY.findall(template)):
        return make_translator(checkpoint, [TRANSLATE_GEMMA], codes)
    if template and _HY_MT_NAME.search(checkpoint.name):
        return make_translator(checkpoint, HY_MT, HY_MT_LANGUAGES.split())
    return checkpoint


def make_translator(checkpoint: Checkpoint, content: Any, languages: Iterable[str]) -> Checkpoint:
    """Return a chat model as one that translates between all of these languages.

    content: of the message that asks for it; see `Manifest.translation_message`. Raises
    CheckpointError.
    """
    codes = tuple(dict.fromkeys(languages))
    conventions = checkpoint.conventions
    if problems := [*_problems(checkpoint, content, codes)]:
        raise CheckpointError(checkpoint.folder, problems)
    message = {"role": "user", "content": content}
    return replace(
        checkpoint,
        config=checkpoint.config.model_copy(update={"languages": codes}),
        conventions=replace(conventions, translation_message=message),
        notes=(*checkpoint.notes, NOTE),
    )


def _problems(checkpoint: Checkpoint, content: Any, codes: tuple[str, ...]) -> Iterable[str]:
    if not isinstance(checkpoint.config, LanguageModelConfig):
        yield "a translation prompt is for language models only"
    elif checkpoint.conventions.chat_template is None:
        yield "a translation prompt needs a model with a chat template"
    if len(codes) < 2:
        yield "a translation prompt needs two languages or more"
    if isinstance(content, str) and len(re.findall(r"^\{text\}$", content, re.MULTILINE)) != 1:
        yield "a translation prompt must have {text} once, on a line of its own"
