"""Term bases in TBX: which term is the translation of which, and what is refused."""

import pytest

from serving.errors import RequestError
from serving.glossary_entries import EntriesFormat, Pair, parse_entries

MARTIF = """<?xml version="1.0" encoding="UTF-16"?>
<!DOCTYPE martif SYSTEM "TBXBasiccoreStructV02.dtd">
<martif type="TBX-Basic" xml:lang="en"><martifHeader/><text><body>
<termEntry id="1"><descrip type="definition">barks</descrip>
 <langSet xml:lang="en-US">
  <tig><term>dog</term></tig>
  <tig><term>hound</term>
   <termNote type="administrativeStatus">deprecatedTerm-admn-sts</termNote></tig>
 </langSet>
 <langSet xml:lang="fr">
  <ntig><termGrp><term>cabot</term>
   <termNote type="administrativeStatus">supersededTerm-admn-sts</termNote></termGrp></ntig>
  <tig><term>toutou</term><termNote type="partOfSpeech">noun</termNote></tig>
  <tig><term>chien  de
   <hi>garde</hi></term>
   <termNote type="administrativeStatus">preferredTerm-admn-sts</termNote></tig>
 </langSet>
</termEntry>
<termEntry id="2">
 <langSet xml:lang="en"><tig><term>cat</term></tig></langSet>
 <langSet xml:lang="fr"><tig><term>matou</term>
  <termNote type="administrativeStatus">deprecatedTerm-admn-sts</termNote></tig></langSet>
</termEntry>
<termEntry id="3">
 <langSet xml:lang="en"><tig><term>dog</term></tig><tig><term>catch</term></tig></langSet>
 <langSet xml:lang="fr"><tig><term>cliquet</term></tig><tig><term>crochet</term></tig></langSet>
</termEntry>
<termEntry id="4"><langSet xml:lang="en"><tig><term>alone</term></tig></langSet></termEntry>
</body></text></martif>"""
TBX = """<tbx style="dct" type="TBX-Basic" xml:lang="en" xmlns="urn:iso:std:iso:30042:ed-2"
 xmlns:min="http://www.tbxinfo.net/ns/min"><tbxHeader/><text><body><conceptEntry id="1">
<langSec xml:lang="de"><termSec><term>Hund</term></termSec></langSec>
<langSec xml:lang="en"><termSec><term>dog</term>
<min:administrativeStatus>admittedTerm-admn-sts</min:administrativeStatus></termSec>
<termSec><term>R&amp;D dog</term>
<min:administrativeStatus>preferredTerm-admn-sts</min:administrativeStatus></termSec></langSec>
</conceptEntry></body></text></tbx>"""


@pytest.mark.parametrize(
    ("text", "source", "target", "entries"),
    [
        (
            *(MARTIF, "en", "fr"),
            {"dog": "chien de garde", "hound": "chien de garde", "catch": "cliquet"},
        ),
        (
            *(MARTIF, "fr", "en-GB"),
            {
                **dict.fromkeys(("cabot", "toutou", "chien de garde"), "dog"),
                "matou": "cat",
                "cliquet": "dog",
                "crochet": "dog",
            },
        ),
        (TBX, "de", "en", {"Hund": "R&D dog"}),
    ],
)
def test_terms(text: str, source: str, target: str, entries: dict[str, str]) -> None:
    assert parse_entries(text, EntriesFormat.TBX, Pair.of(source, target)) == entries


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not well-formed"),
        (TBX.replace("</conceptEntry>", ""), "not well-formed XML: .*line 8"),
        (TBX.replace("R&amp;D", "&who;"), "not well-formed XML: .*line 6"),
        ('<!DOCTYPE tbx [<!ENTITY a "b">]>' + TBX, "must not have entities"),
        ("<html/>", "this is no TBX"),
        (TBX.replace("Hund", " "), "concept of line 2 lacks a term"),
        (TBX.replace('"de"', '"nl"'), "has no entries"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        parse_entries(text, EntriesFormat.TBX, Pair("de", "en"))
