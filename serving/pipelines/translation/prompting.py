"""The prompts in which a language model translates: the tokens around the text of a segment.

A bundle says with which message its model is asked (`Manifest.translation_message`), and its chat
template makes a prompt of it, once for each pair of languages. A segment's text is tokenised apart
from what is around it; so it should begin a line there.
"""

from typing import Any

from serving.bundle.manifest import Manifest
from serving.errors import RequestError
from serving.pipelines.completion_requests import load_chat_template
from serving.pipelines.translation.tokenizer_pair import SpecialTokens
from serving.text.chat_template import Chat
from serving.text.languages import full_language_name
from serving.text.tokenizer import Tokenizer

_TEXT = "\U000f0001"  # for private use: where the text of a segment goes


class TranslationPrompts:
    """Makes the prompts of one bundle."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer) -> None:
        template = load_chat_template(manifest, tokenizer)
        assert template is not None, "checked as the bundle is opened"
        self._template, self._message = template, manifest.translation_message
        self._frames: dict[tuple[str, str], SpecialTokens] = {}

    @classmethod
    def of(cls, manifest: Manifest, tokenizer: Tokenizer) -> "TranslationPrompts | None":
        """Return those of a language model; None for a model that is made to translate."""
        return cls(manifest, tokenizer) if manifest.translation_message else None

    def between(self, source: str, target: str) -> SpecialTokens:
        """Return what is around a segment. The first time for a pair of languages takes longer,
        because the template runs in another process.

        Raises RequestError if the template refuses them.
        """
        pair = source, target
        if pair not in self._frames:
            self._frames[pair] = self._frame(source, target)
        return self._frames[pair]

    def _frame(self, source: str, target: str) -> SpecialTokens:
        values = {
            "{source_language}": full_language_name(source),
            "{target_language}": full_language_name(target),
            "{source_code}": source,
            "{target_code}": target,
            "{text}": _TEXT,
        }
        try:
            chat = Chat((_filled(self._message, values),))
            before, after = self._template.ids_around(chat, _TEXT)
        except RequestError as error:
            raise RequestError("target", target, error.message) from None
        return SpecialTokens(before, after, (), len(before) + len(after), is_prompt=True)


def _filled(value: Any, values: dict[str, str]) -> Any:
    """Return the value with all names in its strings replaced."""
    if isinstance(value, dict):
        return {key: _filled(each, values) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, values) for each in value]
    if isinstance(value, str):
        for name, text in values.items():
            value = value.replace(name, text)
    return value
