"""A document with fragments to translate, as all formats give it, and the scores that it shows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Review:
    """The scores of a document's translations, from 0 to 1, and the model that gave them.

    threshold: a translation with a lower score needs a review.
    """

    scores: Sequence[float | None]
    threshold: float
    model: str

    def needs_review(self, score: float | None) -> bool:
        return score is not None and score < self.threshold


def lowest_score(scores: Iterable[float | None]) -> float | None:
    return min((score for score in scores if score is not None), default=None)


class Document(Protocol):
    """A document: its fragments in their order, in XML that `fragment.MARKUP` describes.

    Reading the same file again gives the same fragments.
    """

    @property
    def fragments(self) -> Sequence[str]: ...

    def write(self, translations: Sequence[str], target: Path, language: str) -> None:
        """Write the document with a translation of each fragment. May be called once.

        language: of the translations, for formats that declare it.
        """


@runtime_checkable
class ReviewedDocument(Document, Protocol):
    """A document whose translations are marked by their quality, if it is known."""

    review: Review | None
