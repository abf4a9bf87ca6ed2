"""Tells what a model answers from what it thinks first, in OpenAI's harmony format."""

from collections.abc import Mapping

CHANNEL, _MESSAGE = "<|channel|>", "<|message|>"
FINAL = f"{CHANNEL}final{_MESSAGE}"
_HEADERS = ("<|start|>", CHANNEL, "<|end|>")


class HarmonyChannels:
    """Tells what an answer says from what it thinks, by the tokens of OpenAI's harmony format:

    <|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi!

    An answer without them says all. special_tokens: how they are written, by id; other models have
    some of the tokens, but no channels.
    """

    def __init__(self, special_tokens: Mapping[int, str]) -> None:
        has_channels = CHANNEL in special_tokens.values()
        self._marks, self._header = special_tokens if has_channels else {}, ""
        self._is_header = self._is_reasoning = False

    def read(self, token_id: int) -> bool:
        """Read one more token. Return whether its text is said."""
        mark = self._marks.get(token_id)
        if mark in _HEADERS:
            self._is_header, self._header = True, ""
        elif mark == _MESSAGE:
            self._is_header, self._is_reasoning = False, self._header.strip() == "analysis"
        return mark != _MESSAGE and not (self._is_header or self._is_reasoning)

    def split(self, text: str) -> tuple[str, str]:
        """Return the text of what was read as said, or as thought; a header's is neither."""
        if self._is_header:
            self._header, text = self._header + text, ""
        return ("", text) if self._is_reasoning else (text, "")
