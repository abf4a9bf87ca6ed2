"""Read and write .po and .pot: messages that are untranslated or fuzzy, also plurals.

Translations are marked as fuzzy, which is gettext's word for unreviewed; of those whose quality is
known only the worse ones. Everything else stays as it is; the header of a template is completed for
the language.
"""

import gettext
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from babel import Locale, UnknownLocaleError
from babel.messages.plurals import DEFAULT_PLURAL, get_plural

from serving.documents.document import Document, Review, lowest_score
from serving.documents.encoding import PO_DECLARATION, TextFile, read_text
from serving.documents.formats.po_file import PoEntry, read_entries, statement, wrap_width
from serving.documents.formats.po_messages import Message
from serving.documents.spans import Edit, apply_edits
from serving.errors import RequestError

_TYPE = "text/plain; charset=UTF-8"
_PLACEHOLDERS = {
    "PO-Revision-Date": "YEAR-MO-DA",
    "Last-Translator": "FULL NAME",
    "Language-Team": "LANGUAGE <",
}
_FIELD = re.compile(r"^([\w-]+): *([^\n]*)", re.MULTILINE)
_RULE = re.compile(r"nplurals\s*=\s*(\d{1,2})\s*;\s*plural\s*=\s*([^;]+)")
_NUMBERS = range(1_000)
_OFTEN = 5  # a form for more numbers than these needs a placeholder for the number


@dataclass(frozen=True)
class _UntranslatedEntry:
    """An entry to translate and its messages: the singular, and the plural if it has one."""

    entry: PoEntry
    messages: tuple[Message, ...]

    @property
    def existing_translations(self) -> dict[str, str]:
        """Return the translations that stay; a fuzzy entry has none."""
        if "fuzzy" in self.entry.flags:
            return {}
        return {
            name: translation.text
            for name, translation in self.entry.translations.items()
            if translation.text
        }


@dataclass(frozen=True)
class PluralForms:
    """The plural rule of a language. form_of: returns the form of a number, from 0."""

    num_forms: int
    form_of: Callable[[int], int]
    rule: str

    def is_singular(self, form: int) -> bool:
        """Return whether a form is used for the number 1."""
        return self.form_of(1) == form and self.num_forms > 1

    def is_rare(self, form: int) -> bool:
        return sum(self.form_of(number) == form for number in _NUMBERS) <= _OFTEN


class PoDocument:
    def __init__(self, file: TextFile, entries: Sequence[PoEntry]) -> None:
        self._file = file
        self._width = wrap_width(file.text)
        self._header = next((entry for entry in entries if entry.is_header), None)
        self._untranslated = [*map(_untranslated_entry, filter(_needs_translation, entries))]
        self.review: Review | None = None

    @property
    def fragments(self) -> Sequence[str]:
        return [message.fragment.xml for message in self._translatable_messages()]

    def write(self, translations: Sequence[str], target: Path, language: str) -> None:
        translation_of = dict(
            zip(map(id, self._translatable_messages()), translations, strict=True)
        )
        scores = dict(zip(translation_of, self.review.scores, strict=True)) if self.review else {}
        forms = parse_plural_forms(self._fields().get("Plural-Forms", "")) or plural_forms(language)
        edits = [*self._header_edits(language, forms)]
        for entry in self._untranslated:
            texts = [_text(message, translation_of.get(id(message))) for message in entry.messages]
            edits += _edits(entry, texts, forms, self._width)
            edits += _fuzzy_edits(entry, self._is_fuzzy(entry, scores))
        file = self._file if self._header else replace(self._file, encoding="utf-8")
        file.write(apply_edits(file.text, edits), target)

    def _translatable_messages(self) -> Iterator[Message]:
        for entry in self._untranslated:
            yield from (message for message in entry.messages if message.fragment.has_words)

    def _is_fuzzy(self, entry: _UntranslatedEntry, scores: Mapping[int, float | None]) -> bool:
        score = lowest_score(scores.get(id(message)) for message in entry.messages)
        return self.review is None or self.review.needs_review(score)

    def _fields(self) -> dict[str, str]:
        header = self._header
        return dict(_FIELD.findall(header.translations["msgstr"].text)) if header else {}

    def _header_edits(self, language: str, forms: PluralForms) -> Iterator[Edit]:
        fields = self._fields()
        changes = _header_changes(fields, language, forms, any(map(_is_plural, self._untranslated)))
        if self._header is None:
            text = "".join(f"{name}: {value}\n" for name, value in changes.items())
            yield 0, 0, f'msgid ""\n{statement("msgstr", text, None)}\n\n'
            return
        old = self._header.translations["msgstr"]
        text = _change_fields(old.text, changes)
        if text != old.text:
            yield old.start, old.end, statement("msgstr", text, None)
        if changes.keys() & _PLACEHOLDERS.keys():
            yield from _without_fuzzy(self._header)


def read_po(path: Path, language: str | None = None) -> Document:
    """Read a PO file. Raises RequestError."""
    file = read_text(path, language, PO_DECLARATION).with_line_feeds()
    try:
        entries = read_entries(file.text)
    except ValueError as error:
        raise RequestError("file", path.name, f"is not a PO file: {error}") from None
    if not entries:
        raise RequestError("file", path.name, "is not what its name says: it has no messages")
    return PoDocument(file, entries)


def _needs_translation(entry: PoEntry) -> bool:
    is_whole = all(translation.text for translation in entry.translations.values())
    return not entry.is_header and (not is_whole or "fuzzy" in entry.flags)


def _is_plural(entry: _UntranslatedEntry) -> bool:
    return entry.entry.msgid_plural is not None


def _untranslated_entry(entry: PoEntry) -> _UntranslatedEntry:
    texts = [entry.msgid] if entry.msgid_plural is None else [entry.msgid, entry.msgid_plural]
    return _UntranslatedEntry(entry, tuple(Message(text, entry.flags) for text in texts))


def _text(message: Message, translation: str | None) -> str:
    """Return the translation of a message; one without words stays as it is."""
    return message.source if translation is None else message.apply_translation(translation)


def _edits(
    entry: _UntranslatedEntry, texts: Sequence[str], forms: PluralForms, width: int | None
) -> Iterator[Edit]:
    if not any(message.fragment.has_words for message in entry.messages):
        return
    old = entry.entry.translations.values()
    new = {"msgstr": texts[0]} if len(texts) == 1 else _plural_texts(entry, texts, forms)
    lines = [
        statement(name, text, width) for name, text in (new | entry.existing_translations).items()
    ]
    yield (
        min(statement.start for statement in old),
        max(statement.end for statement in old),
        "\n".join(lines),
    )


def _fuzzy_edits(entry: _UntranslatedEntry, is_fuzzy: bool) -> Iterator[Edit]:
    if any(message.fragment.has_words for message in entry.messages):
        yield from _mark_fuzzy(entry.entry) if is_fuzzy else _without_fuzzy(entry.entry)


def _plural_texts(
    entry: _UntranslatedEntry, texts: Sequence[str], forms: PluralForms
) -> dict[str, str]:
    """Return a text for each plural form.

    The singular is used for the number 1 only, unless it has the same placeholders as the plural.
    """
    one, many = entry.messages
    says_number = one.placeholders == many.placeholders
    return {
        f"msgstr[{form}]": texts[0]
        if forms.is_singular(form) and (says_number or forms.is_rare(form))
        else texts[1]
        for form in range(forms.num_forms)
    }


def _mark_fuzzy(entry: PoEntry) -> Iterator[Edit]:
    """Mark an entry as fuzzy, after its comments and before the previous message."""
    if "fuzzy" in entry.flags:
        return
    flags = next((place for place, line in entry.comments if line.startswith("#,")), None)
    if flags is not None:
        yield flags, flags + 2, "#, fuzzy,"
        return
    previous = (place for place, line in entry.comments if line.startswith("#|"))
    place = next(previous, entry.start)
    yield place, place, "#, fuzzy\n"


def _without_fuzzy(entry: PoEntry) -> Iterator[Edit]:
    for place, line in entry.comments:
        if line.startswith("#,") and "fuzzy" in line:
            flags = [flag for flag in line[2:].split(",") if flag.strip() != "fuzzy"]
            end = place + len(line) + (0 if flags else 1)
            yield place, end, f"#,{','.join(flags)}" if flags else ""


def _header_changes(
    fields: dict[str, str], language: str, forms: PluralForms, has_plurals: bool
) -> dict[str, str]:
    """Return the header fields that a template leaves open or that are missing."""
    done = {
        "PO-Revision-Date": time.strftime("%Y-%m-%d %H:%M+0000", time.gmtime()),
        "Last-Translator": "Automatically generated",
        "Language-Team": "none",
    }
    changes = {
        name: done[name]
        for name, start in _PLACEHOLDERS.items()
        if fields.get(name, "").startswith(start)
    }
    if not fields.get("Language"):
        changes["Language"] = language.replace("-", "_")
    if "charset=" not in fields.get("Content-Type", ""):
        changes["Content-Type"] = _TYPE
    if (rule := fields.get("Plural-Forms")) or has_plurals:
        changes |= {} if parse_plural_forms(rule or "") else {"Plural-Forms": forms.rule}
    return changes


def _change_fields(header: str, changes: dict[str, str]) -> str:
    """Return the header with changed fields, and with new ones at its end."""
    remaining = dict(changes)
    text = _FIELD.sub(
        lambda match: (
            f"{match[1]}: {remaining.pop(match[1])}" if match[1] in remaining else match.group()
        ),
        header,
    )
    return text + "".join(f"{name}: {value}\n" for name, value in remaining.items())


def parse_plural_forms(rule: str) -> PluralForms | None:
    """Return the rule of a header's `Plural-Forms`; None if it is invalid."""
    match = _RULE.match(rule.strip())
    if match is None or not int(match[1]):
        return None
    try:
        form_of = gettext.c2py(match[2].strip())
        highest = max(map(form_of, _NUMBERS))
    except (ValueError, ArithmeticError, RecursionError):
        return None
    return PluralForms(int(match[1]), form_of, rule) if highest < int(match[1]) else None


def plural_forms(language: str) -> PluralForms:
    """Return the rule of a language; that of English for an unknown one."""
    try:
        rule = str(get_plural(Locale.parse(language, sep="-" if "-" in language else "_")))
    except (UnknownLocaleError, ValueError):
        rule = "nplurals={}; plural={};".format(*DEFAULT_PLURAL)
    forms = parse_plural_forms(rule)
    assert forms is not None  # for Babel's rules are valid
    return forms
