"""The prompts in which a language model translates: the tokens around the text of a segment.

A bundle says with which message its model is asked (`Manifest.translation_message`), and its chat
template makes a prompt of it, once for each pair of languages. A segment's text is tokenised apart
from what is around it; so it should begin a line there.
"""

from typing import Any

from serving.bundle.manifest import Manifest
from serving.errors import RequestError
from serving.pipelines.completion.prompts import load_chat_template
from serving.pipelines.translation.tokenizer_pair import LanguagePairTokens
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

    @classmethod
    def for_model(cls, manifest: Manifest, tokenizer: Tokenizer) -> "TranslationPrompts | None":
        """Return those of a language model; None for a model that is made to translate."""
        return cls(manifest, tokenizer) if manifest.translation_message else None

    def special_tokens(self, source: str, target: str) -> LanguagePairTokens:
        """Return the tokens around a segment. It takes some time: the template runs in another
        process.

        Raises RequestError if the template refuses the languages.
        """
        values = {
            "{source_language}": full_language_name(source),
            "{target_language}": full_language_name(target),
            "{source_code}": source,
            "{target_code}": target,
            "{text}": _TEXT,
        }
        try:
            chat = Chat((_fill_names(self._message, values),))
            before, after = self._template.ids_around(chat, _TEXT)
        except RequestError as error:
            raise RequestError("target", target, error.message) from None
        return LanguagePairTokens(before, after, (), len(before) + len(after), is_prompt=True)


def _fill_names(message: Any, values: dict[str, str]) -> Any:
    """Return the message with all names in its strings replaced."""
    if isinstance(message, dict):
        return {key: _fill_names(value, values) for key, value in message.items()}
    if isinstance(message, list):
        return [_fill_names(value, values) for value in message]
    if isinstance(message, str):
        for name, text in values.items():
            message = message.replace(name, text)
    return message
