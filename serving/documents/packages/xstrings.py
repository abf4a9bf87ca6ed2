"""Strings of spreadsheets and charts (ST_Xstring of ECMA-376, part 1, 22.9.2.19): `_x000D_` stands
for the character of that number, which XML may not be able to hold.
"""

import re

_ESCAPE = re.compile(r"_x([\da-fA-F]{4})_")
_LOOKS_LIKE_ESCAPE = re.compile(r"_(?=x[\da-fA-F]{4}_)")
# What XML cannot hold is, while a text is translated, a character for private use.
_FIRST_PLACEHOLDER = 0x10F000
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]|[\ud800-\udfff]")
_PLACEHOLDERS = f"[{chr(_FIRST_PLACEHOLDER)}-{chr(_FIRST_PLACEHOLDER + 0xFFF)}]"
# Characters that are no words, and stay where they are: line breaks of two characters, and such
# as only an escape can say.
SEPARATORS = rf"\t+|\r\n?|{_PLACEHOLDERS}+"
_WRITTEN_AS_ESCAPES = re.compile(rf"\r|{_PLACEHOLDERS}")


def decode_xstring(string: str) -> str:
    """Return the text that a string of a file means. Characters that XML cannot hold have a
    placeholder.
    """
    if "_x" not in string:
        return string
    text = _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), string)
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")  # joins pairs
    return _NO_XML.sub(_placeholder, text)


def encode_xstring(text: str) -> str:
    """Return a text as files write it."""
    text = _LOOKS_LIKE_ESCAPE.sub("_x005F_", text)
    return _WRITTEN_AS_ESCAPES.sub(_escape, text)


def _placeholder(character: re.Match[str]) -> str:
    return chr(_FIRST_PLACEHOLDER + (ord(character[0]) & 0xFFF))


def _escape(character: re.Match[str]) -> str:
    number = ord(character[0])
    if number >= _FIRST_PLACEHOLDER:
        number -= _FIRST_PLACEHOLDER
        number += 0xF000 if number >= 0xFFE else 0xD000 if number >= 0x800 else 0
    return f"_x{number:04X}_"
