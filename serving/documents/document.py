"""Says what a document is to those who translate it: fragments of text, and a way to write it with
translations in their places.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from serving.documents.parts.inline import KEPT_TAG, PARTING_TAG
from serving.text.markup.options import Markup, MarkupKind

# How fragments are marked up: codes never part sentences, but for line breaks.
MARKUP = Markup(
    MarkupKind.XML,
    splitting_tags=frozenset({PARTING_TAG}),
    ignore_tags=frozenset({KEPT_TAG}),
    outline_detection=False,
)


class Document(Protocol):
    """Holds the fragments of a document in the order of its text, in XML that `MARKUP` describes.

    Reading the same file again gives the same fragments.
    """

    @property
    def fragments(self) -> Sequence[str]: ...

    def write(self, translations: Sequence[str], target: Path, language: str) -> None:
        """Write the document, once, with a translation of each fragment.

        language: what they are translated into, for formats that say so.
        """
