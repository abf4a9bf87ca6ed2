"""Term bases in TBX: which term is the translation of which, and what is refused."""

import pytest

from serving.errors import RequestError
from serving.glossaries.entries import EntriesFormat, GlossaryPair, parse_entries

# Terms may have a letter after them: deprecated, superseded or preferred.
STATUS = '<termNote type="administrativeStatus">%sTerm-admn-sts</termNote>'
KINDS = {"d": "deprecated", "s": "superseded", "p": "preferred"}


def section(language: str, *terms: str) -> str:
    parts = (item.partition(":") for item in terms)
    written = (
        f"<tig><term>{term}</term>{STATUS % KINDS[kind] if kind else ''}</tig>"
        for term, _, kind in parts
    )
    return f'<langSet xml:lang="{language}">{"".join(written)}</langSet>'


def martif(*concepts: tuple[str, ...]) -> str:
    entries = "".join(f"<termEntry>{''.join(concept)}</termEntry>\n" for concept in concepts)
    head = '<?xml version="1.0" encoding="UTF-16"?><!DOCTYPE martif SYSTEM "a.dtd">'
    return f"{head}\n<martif><text><body>{entries}</body></text></martif>"


MARTIF = martif(
    (section("en-US", "dog", "hound:d"), section("fr", "cabot:s", "toutou", "chien <hi>x</hi>:p")),
    (section("en", "cat"), section("fr", "matou:d")),
    (section("en", "dog", "catch"), section("fr", "cliquet", "crochet")),
    (section("en", "alone"),),
)
TBX = """<tbx xmlns="urn:iso:std:iso:30042:ed-2" xmlns:min="http://www.tbxinfo.net/ns/min"><text>
<body><conceptEntry><langSec xml:lang="de"><termSec><term>Hund</term></termSec></langSec>
<langSec xml:lang="en"><termSec><term>dog</term></termSec><termSec><term>R&amp;D dog</term>
<min:administrativeStatus>preferredTerm-admn-sts</min:administrativeStatus></termSec></langSec>
</conceptEntry></body></text></tbx>"""


@pytest.mark.parametrize(
    ("text", "source", "target", "entries"),
    [
        (MARTIF, "en", "fr", {"dog": "chien x", "hound": "chien x", "catch": "cliquet"}),
        (
            *(MARTIF, "fr", "en-GB"),
            dict.fromkeys(("cabot", "toutou", "chien x", "cliquet", "crochet"), "dog")
            | {"matou": "cat"},
        ),
        (TBX, "de", "en", {"Hund": "R&D dog"}),
    ],
)
def test_terms(text: str, source: str, target: str, entries: dict[str, str]) -> None:
    assert (
        parse_entries(text, EntriesFormat.TBX, GlossaryPair.from_codes(source, target)) == entries
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not well-formed"),
        (TBX.replace("</conceptEntry>", ""), "not well-formed XML: .*line 5"),
        (TBX.replace("R&amp;D", "&who;"), "not well-formed XML: .*line 3"),
        ('<!DOCTYPE tbx [<!ENTITY a "b">]>' + TBX, "must not have entities"),
        ("<html/>", "this is no TBX"),
        (TBX.replace("Hund", " "), "concept of line 2 lacks a term"),
        (TBX.replace('"de"', '"nl"'), "has no entries"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        parse_entries(text, EntriesFormat.TBX, GlossaryPair("de", "en"))
