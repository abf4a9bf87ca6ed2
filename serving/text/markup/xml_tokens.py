"""Split XML into tokens with their places in the text.

The parser is expat, which loads nothing and, as it is used here, expands no entities: those that a
document type declares are tokens like comments.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from xml.parsers import expat

_REFERENCE = re.compile(r"&(?:#x([\da-fA-F]+)|#(\d+)|(amp|lt|gt|quot|apos));")
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}


class XmlTokenKind(Enum):
    """What a token of XML is. OTHER: a comment, an instruction, or what is before the root."""

    START_TAG = auto()
    END_TAG = auto()
    EMPTY_TAG = auto()
    TEXT = auto()
    CDATA = auto()
    OTHER = auto()


@dataclass(slots=True)
class XmlToken:
    """A token of XML, and its place in the text.

    name: of a tag, with its prefix. attributes: of a start tag or an empty one.
    """

    kind: XmlTokenKind
    start: int
    end: int = 0
    name: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)

    def raw(self, text: str) -> str:
        """Return how the token is written in the text that it is of."""
        return text[self.start : self.end]

    def cdata(self, text: str) -> str:
        """Return what stands in a CDATA section."""
        return text[self.start + len("<![CDATA[") : self.end - len("]]>")]


class XmlSyntaxError(ValueError):
    """A text is not well-formed XML."""


def tokenize_xml(text: str) -> list[XmlToken]:
    """Return the tokens of a document; one begins where the last one ends.

    Raises XmlSyntaxError if it is not well-formed. Prefixes need not be declared.
    """
    # Lone surrogates, which JSON can send, are not well-formed: expat says so.
    data = text.encode("utf-8", "surrogatepass")
    tokens = _Recorder().record(data)
    if len(data) != len(text):
        _count_characters(tokens, data)
    ends = [token.start for token in tokens[1:]]
    for token, end in zip(tokens, [*ends, len(text)], strict=True):
        token.end = end
        if token.kind is XmlTokenKind.START_TAG and text.startswith("/>", end - 2):
            token.kind = XmlTokenKind.EMPTY_TAG
    # expat reports the end of an empty element, too, at a place without width.
    return [token for token in tokens if token.end > token.start]


def _count_characters(tokens: list[XmlToken], data: bytes) -> None:
    """Turn the places of tokens from bytes to characters."""
    num_bytes = num_characters = 0
    for token in tokens:
        num_characters += len(data[num_bytes : token.start].decode("utf-8", "surrogatepass"))
        num_bytes, token.start = token.start, num_characters


class _Recorder:
    """A recorder of the places, in bytes, where expat finds the tokens of a document."""

    def __init__(self) -> None:
        self._tokens: list[XmlToken] = []
        self._parser = parser = expat.ParserCreate("utf-8")
        parser.buffer_text = False
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.StartCdataSectionHandler = self._start_cdata
        parser.EndCdataSectionHandler = self._end_cdata
        parser.CommentHandler = lambda data: self._add(XmlTokenKind.OTHER)
        parser.ProcessingInstructionHandler = lambda target, data: self._add(XmlTokenKind.OTHER)
        # White space and declarations outside the root; within it, nothing.
        parser.DefaultHandler = self._other
        self._is_in_cdata = False

    def record(self, data: bytes) -> list[XmlToken]:
        try:
            self._parser.Parse(data, True)
        except expat.ExpatError as error:
            raise XmlSyntaxError(expat.ErrorString(error.code)) from None
        return self._tokens

    def _add(self, kind: XmlTokenKind, name: str = "") -> XmlToken:
        token = XmlToken(kind, self._parser.CurrentByteIndex, name=name)
        self._tokens.append(token)
        return token

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._add(XmlTokenKind.START_TAG, name).attributes = attributes

    def _end(self, name: str) -> None:
        self._add(XmlTokenKind.END_TAG, name)

    def _characters(self, text: str) -> None:
        if not self._is_in_cdata and self._tokens[-1].kind is not XmlTokenKind.TEXT:
            self._add(XmlTokenKind.TEXT)

    def _start_cdata(self) -> None:
        self._is_in_cdata = True
        self._add(XmlTokenKind.CDATA)

    def _end_cdata(self) -> None:
        self._is_in_cdata = False

    def _other(self, data: str) -> None:
        if not self._is_in_cdata and (
            not self._tokens or self._tokens[-1].kind is not XmlTokenKind.OTHER
        ):
            self._add(XmlTokenKind.OTHER)


def unescape_references(text: str) -> str:
    """Return a text with its character references, and XML's five entities, replaced.

    All at once: "&#38;lt;" is the text "&lt;".
    """
    return _REFERENCE.sub(_referenced_character, text) if "&" in text else text


def _referenced_character(match: re.Match[str]) -> str:
    hexadecimal, decimal, entity = match.groups()
    if entity:
        return _ENTITIES[entity]
    return chr(int(hexadecimal, 16) if hexadecimal else int(decimal))
