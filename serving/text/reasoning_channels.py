"""Separates the answer of a model from its reasoning, in OpenAI's harmony format."""

from collections.abc import Mapping

CHANNEL, _MESSAGE = "<|channel|>", "<|message|>"
FINAL = f"{CHANNEL}final{_MESSAGE}"
_HEADERS = ("<|start|>", CHANNEL, "<|end|>")


class HarmonyChannels:
    """Separates the text of an answer from reasoning, by the special tokens of the harmony format:

    <|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi!

    An answer without them has no reasoning.

    special_tokens: how they are written, by id. Other models have some of them, but no channels.
    """

    def __init__(self, special_tokens: Mapping[int, str]) -> None:
        has_channels = CHANNEL in special_tokens.values()
        self._marks, self._header = special_tokens if has_channels else {}, ""
        self._is_header = self._is_reasoning = False

    def read_token(self, token_id: int) -> bool:
        """Read one more token. Return whether its text belongs to the answer."""
        mark = self._marks.get(token_id)
        if mark in _HEADERS:
            self._is_header, self._header = True, ""
        elif mark == _MESSAGE:
            self._is_header, self._is_reasoning = False, self._header.strip() == "analysis"
        return mark != _MESSAGE and not (self._is_header or self._is_reasoning)

    def split(self, text: str) -> tuple[str, str]:
        """Return the text of the last token as answer and as reasoning; a header is neither."""
        if self._is_header:
            self._header, text = self._header + text, ""
        return ("", text) if self._is_reasoning else (text, "")
