"""Says what the marks in a text are, and which of them part it or hold what is not translated."""

from dataclasses import dataclass
from enum import StrEnum

LINE_BREAK_TAG = "br"


class MarkupKind(StrEnum):
    HTML = "html"
    XML = "xml"


@dataclass(frozen=True, slots=True)
class Markup:
    """Describes the markup of a job's texts.

    splitting_tags: names of elements whose borders part sentences.
    non_splitting_tags: names of elements whose borders never do.
    ignore_tags: names of elements that stay as they are.
    outline_detection: in XML, elements that hold text between elements only part it, those that
        stand within a run of text do not; without it only `splitting_tags` do.
    """

    kind: MarkupKind
    splitting_tags: frozenset[str] = frozenset()
    non_splitting_tags: frozenset[str] = frozenset()
    ignore_tags: frozenset[str] = frozenset()
    outline_detection: bool = True
