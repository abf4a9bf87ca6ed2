"""Holds the bodies by which glossaries are made and changed."""

from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from serving.api.http.reading.bodies import FieldsBody
from serving.errors import RequestError
from serving.glossaries.entries import EntriesFormat, Pair, parse_entries
from serving.glossaries.tables import Entries
from serving.text.plain_text import check_text

_MAX_NAME_BYTES = 1024
_MAX_DICTIONARIES = 1000


class DictionaryFields(BaseModel):
    """Holds the entries of one pair of languages. entries: as TSV or CSV, as the format says."""

    model_config = ConfigDict(extra="forbid")

    source_lang: str
    target_lang: str
    entries: str
    entries_format: EntriesFormat = EntriesFormat.TSV

    @property
    def pair(self) -> Pair:
        return Pair.of(self.source_lang, self.target_lang)

    def parsed(self, known: Iterable[Pair]) -> Entries:
        """Return the entries by their terms. Raises RequestError. known: the pairs that may be."""
        if self.pair not in known:
            message = "Unsupported glossary source and target language pair"
            raise RequestError("target_lang", f"{self.source_lang}, {self.target_lang}", message)
        check_text("entries", self.entries)
        return parse_entries(self.entries, self.entries_format, self.pair)


class DictionaryBody(DictionaryFields, FieldsBody):
    """Holds the body of `PUT /v3/glossaries/{id}/dictionaries`."""


class MonolingualBody(DictionaryBody):
    """Holds the body of `POST /v2/glossaries`: a glossary of one pair of languages."""

    name: str


class MultilingualBody(FieldsBody):
    """Holds the body of `POST /v3/glossaries`: a glossary of several pairs of languages."""

    model_config = ConfigDict(extra="forbid")

    name: str
    dictionaries: Annotated[
        list[DictionaryFields], Field(min_length=1, max_length=_MAX_DICTIONARIES)
    ]


class ChangesBody(FieldsBody):
    """Holds the body of `PATCH /v3/glossaries/{id}`: another name, further entries, or both."""

    model_config = ConfigDict(extra="forbid")

    name: str | None = None
    dictionaries: Annotated[list[DictionaryFields], Field(max_length=_MAX_DICTIONARIES)] = Field(
        default_factory=list
    )


def checked_name(name: str) -> str:
    """Return a name that a glossary may have. Raises RequestError."""
    check_text("name", name)
    if not name.strip() or len(name.encode()) > _MAX_NAME_BYTES:
        raise RequestError("name", name, f"must have between 1 and {_MAX_NAME_BYTES} bytes")
    return name


def parsed(dictionaries: Iterable[DictionaryFields], known: Iterable[Pair]) -> dict[Pair, Entries]:
    """Return the entries of each pair; raises RequestError where a pair comes twice."""
    found: dict[Pair, Entries] = {}
    for each in dictionaries:
        if each.pair in found:
            value = f"{each.source_lang}, {each.target_lang}"
            raise RequestError("dictionaries", value, "must have each pair of languages once")
        found[each.pair] = each.parsed(known)
    return found
