"""PO files: messages get fuzzy translations, all else stays to the character."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import polib
import pytest

from serving.documents.document import Review, ReviewedDocument
from serving.documents.formats.po import plural_forms
from serving.documents.formats.registry import read_document
from serving.errors import RequestError
from tests.serving.documents.shouting import shout_fragment

HEADER = 'msgid ""\nmsgstr ""\n"Language: {}\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'


def translate(
    tmp_path: Path,
    text: str,
    language: str = "fr",
    name: str = "a.po",
    change: Callable[[str], str] = shout_fragment,
) -> tuple[Sequence[str], str]:
    path, target = tmp_path / name, tmp_path / f"out-{name}"
    path.write_bytes(text.encode())
    document = read_document(path, name, "en")
    fragments = [*document.fragments]
    document.write([change(fragment) for fragment in fragments], target, language)
    return fragments, target.read_bytes().decode()


def message(msgid: str, flags: str = "", msgstr: str = "") -> str:
    lines = [f"#, {flags}"] if flags else []
    return "\n".join([*lines, f'msgid "{msgid}"', f'msgstr "{msgstr}"', ""])


ALL = """# A comment of the translator,
#  kept as it is

#. extracted
#: src/a.c:10 src/b.c:20
#, c-format
#| msgid "Hi"
msgctxt "a menu"
msgid "Hello"
msgstr ""

#, fuzzy
#| msgid "O"
msgid   "Open"
msgstr "Ouvre"

msgid "Done"
msgstr ""
"Fi"
"ni"

#~ msgid "old"
#~ msgstr ""
"""
ALL_SHOUTED = (
    ALL.replace("#, c-format", "#, fuzzy, c-format")
    .replace('msgid "Hello"\nmsgstr ""', 'msgid "Hello"\nmsgstr "HELLO"')
    .replace('msgstr "Ouvre"', 'msgstr "OPEN"')
)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_all_else_stays_to_the_character(tmp_path: Path, line_end: str) -> None:
    header = HEADER.format("fr")

    fragments, written = translate(tmp_path, (header + ALL).replace("\n", line_end))

    assert fragments == ["Hello", "Open"]
    assert written == (header + ALL_SHOUTED).replace("\n", line_end)


def test_a_file_without_a_header_gets_one(tmp_path: Path) -> None:
    _, written = translate(tmp_path, message("dog"))

    assert written == HEADER.format("fr") + message("dog", "fuzzy", "DOG")


def test_the_mark_of_a_machine_stands_before_what_a_message_was(tmp_path: Path) -> None:
    source = HEADER.format("fr") + '# said\n#: a.c:1\n#| msgid "A"\nmsgid "Dog"\nmsgstr ""\n'

    _, written = translate(tmp_path, source)

    assert written.endswith('#: a.c:1\n#, fuzzy\n#| msgid "A"\nmsgid "Dog"\nmsgstr "DOG"\n')


@pytest.mark.parametrize(
    ("flags", "msgid", "placeholders"),
    [
        ("c-format", "%'d of % d on %n in %*d, %-5s %1$'d", "%'d|% d|%n|%*d|%-5s|%1$'d"),
        ("c-format", "%lu %zu %hhd %+.3Lf %#x %.*s %<PRIu64> %%", "%lu|%zu|%hhd|%+.3Lf|%#x|%.*s"),
        ("", "%'d of % d with %n at %*d and %-5s %1$'d", "%'d|% d|%n|%*d|%-5s|%1$'d"),
        ("python-format", "%(name)s has %(n)05.1f of %i", "%(name)s|%(n)05.1f|%i"),
        ("python-brace-format", "{name!r:>10} and {0} and {{", "{name!r:>10}|{0}"),
        ("php-format", "%1$s has %'*10s of %05d", "%1$s|%'*10s|%05d"),
        ("qt-format", "%1 of %L2 and %n", "%1|%L2|%n"),
        ("objc-format", "%@ and %1$@", "%@|%1$@"),
        ("", "on %B %-d, %Y at %H:%M", "%B|%-d|%Y|%H|%M"),
        ("", "{{user}} and ${place} and #{now} at %{site}", "{{user}}|${place}|#{now}|%{site}"),
        (
            "",
            "%name% at :place has @count %items or :smile:",
            "%name%|:place|@count|%items|:smile:",
        ),
    ],
)
def test_placeholders(tmp_path: Path, flags: str, msgid: str, placeholders: str) -> None:
    _, written = translate(tmp_path, message(f"dog {msgid} cat", flags))

    [entry] = polib.pofile(written)
    for placeholder in placeholders.split("|"):
        assert entry.msgstr.count(placeholder) == entry.msgid.count(placeholder)
    words = re.findall(r"[A-Z]{2,}", entry.msgstr)
    assert words[0] == "DOG" and words[-1] == "CAT"


@pytest.mark.parametrize("msgid", ["50% of it", "100 % done", "50% discount", "a 5% increase"])
def test_percentages_are_text(tmp_path: Path, msgid: str) -> None:
    _, written = translate(tmp_path, message(msgid))

    assert polib.pofile(written)[0].msgstr == msgid.upper()


@pytest.mark.parametrize(
    ("flags", "msgid", "fragment"),
    [
        ("c-format", "%d dogs in %s", '<k id="2">%d</k> dogs in <k id="4">%s</k>'),
        ("c-format", "(%d%%) of dogs", '(<k id="2">%d%%</k>) of dogs'),
        ("", "{name} has ${n} dogs", '<k id="2">{name}</k> has <k id="4">${n}</k> dogs'),
        (
            "",
            "{n, plural, one {# dog} other {# dogs}}",
            '<k id="4">#</k> dog<br id="6"/><k id="8">#</k> dogs',
        ),
    ],
)
def test_placeholders_are_words(tmp_path: Path, flags: str, msgid: str, fragment: str) -> None:
    """A model that sees no placeholder begins a sentence behind it."""
    fragments, _ = translate(tmp_path, message(msgid, flags))

    assert fragments == [fragment]


@pytest.mark.parametrize(
    ("msgid", "fragment", "translation", "expected"),
    [
        ("caf&eacute; &amp; bar", "café &amp; bar", "bar &amp; café", "bar &amp; caf&eacute;"),
        ("2 &lt; 3 &#169; us", "2 &lt; 3 © us", "nous © 2 &lt; 3", "nous &#169; 2 &lt; 3"),
        ("&nbsp;a dog", "a dog", "un chien", "&nbsp;un chien"),
        ("a dog &foo; is", "a dog &amp;foo; is", "un &amp;foo;", "un &foo;"),
        ("a &#10; dog", 'a <x id="2"/> dog', 'un <x id="2"/> chien', "un &#10; chien"),
    ],
)
def test_entities_are_characters(
    tmp_path: Path, msgid: str, fragment: str, translation: str, expected: str
) -> None:
    fragments, written = translate(tmp_path, message(msgid), change=lambda _: translation)

    assert fragments == [fragment]
    assert polib.pofile(written)[0].msgstr == expected


def test_two_spaces_between_words_are_no_column(tmp_path: Path) -> None:
    fragments, _ = translate(tmp_path, message("Two  men are here"))

    assert fragments == ["Two  men are here"]


def swapped(fragment: str) -> str:
    """Put the last code of a fragment before all else of it."""
    *_, last = re.findall("<k[^>]*>[^<]*</k>", fragment)
    return last + " " + fragment.replace(last, "")


@pytest.mark.parametrize(
    ("flags", "msgid", "expected"),
    [
        ("c-format", "dogs %d in %s here", "%2$s dogs %1$d in  here"),
        ("c-format", "dogs %*d in %s here", "%3$s dogs %2$*1$d in  here"),
        ("c-format", "dogs %1$d in %2$s here", "%2$s dogs %1$d in  here"),
        ("python-format", "dogs %d in %s here", "%d dogs %s in  here"),
        ("python-format", "dogs %(n)d in %(p)s here", "%(p)s dogs %(n)d in  here"),
        ("", "dogs %s in %d here", "%s dogs %d in  here"),
        ("", "dogs %B in %d here", "%d dogs %B in  here"),
        ("qt-format", "dogs %1 in %2 here", "%2 dogs %1 in  here"),
    ],
)
def test_arguments_in_another_order(tmp_path: Path, flags: str, msgid: str, expected: str) -> None:
    """Programs take unnumbered arguments as they come."""
    _, written = translate(tmp_path, message(msgid, flags), change=swapped)

    assert polib.pofile(written)[0].msgstr == expected


@pytest.mark.parametrize(
    ("msgid", "translation", "expected"),
    [
        ("&Open file", "Ouvrir le fichier", "&Ouvrir le fichier"),
        ("Save &As…", "Sauver sous…", "S&auver sous…"),
        ("E&xit", "Quitter", "&Quitter"),
        ("_Open", "Ouvrir", "_Ouvrir"),
        ("E_xit", "Sortie", "_Sortie"),
        ("~File", "Fichier", "~Fichier"),
        ("&Print %s now", '<k id="2">%s</k> imprimer', "%s im&primer"),
        ("&Open", "開く", "開く(&O)"),
        ("Open (_O)", "Ouvrir", "_Ouvrir"),
        ("Save (&S)...", "Enregistrer...", "Enregi&strer..."),
        ("(&F)ile", "(F)ichier", "(&F)ichier"),
        ("&Open...", "開く...", "開く(&O)..."),
        ("AT&T", "AT&amp;T", "AT&T"),
        ("R&D costs", "Les frais de R&amp;D", "Les frais de R&D"),
        ("the user_id", "le user_id", "le user_id"),
        ("Fish &amp; chips", "Poisson &amp; frites", "Poisson &amp; frites"),
        ("Fish && chips", "Poisson &amp;&amp; frites", "Poisson && frites"),
    ],
)
def test_accelerators(tmp_path: Path, msgid: str, translation: str, expected: str) -> None:
    _, written = translate(tmp_path, message(msgid), change=lambda _: translation)

    assert polib.pofile(written)[0].msgstr == expected


TEMPLATE = r"""# A title.
#
#, fuzzy
msgid ""
msgstr ""
"Project-Id-Version: dogs 1\n"
"PO-Revision-Date: YEAR-MO-DA HO:MI+ZONE\n"
"Last-Translator: FULL NAME <EMAIL@ADDRESS>\n"
"Language-Team: LANGUAGE <LL@li.org>\n"
"Language: \n"
"Content-Type: text/plain; charset=CHARSET\n"
"Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;\n"

msgid "One dog"
msgid_plural "%d dogs"
msgstr[0] ""
msgstr[1] ""
"""


@pytest.mark.parametrize(
    ("language", "texts"),
    [
        ("nl", ["ONE DOG", "%d DOGS"]),
        ("de", ["ONE DOG", "%d DOGS"]),
        ("ja", ["%d DOGS"]),
        ("ru", ["%d DOGS"] * 3),  # its first form is of 21 too
        ("pl", ["ONE DOG", "%d DOGS", "%d DOGS"]),
        ("ar", ["%d DOGS", "ONE DOG", *["%d DOGS"] * 4]),
        ("de-AT", ["ONE DOG", "%d DOGS"]),
        ("zz", ["ONE DOG", "%d DOGS"]),
    ],
)
def test_a_template_becomes_a_file_of_the_language(
    tmp_path: Path, language: str, texts: list[str]
) -> None:
    _, written = translate(tmp_path, TEMPLATE, language, "a.pot")

    file = polib.pofile(written)
    assert not file.metadata_is_fuzzy
    assert file.metadata["Language"] == language.replace("-", "_")
    assert file.metadata["Content-Type"] == "text/plain; charset=UTF-8"
    assert file.metadata["Plural-Forms"] == plural_forms(language).rule
    assert file.metadata["Project-Id-Version"] == "dogs 1"
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d\+0000$", file.metadata["PO-Revision-Date"])
    assert "EMAIL" not in written and "LL@li.org" not in written
    assert [*file[0].msgstr_plural.values()] == texts
    assert written.startswith("# A title.\n#\nmsgid")


def test_forms_that_are_there_stay(tmp_path: Path) -> None:
    plural = 'msgid "One dog"\nmsgid_plural "%d dogs"\nmsgstr[0] "Een hond"\nmsgstr[1] ""\n'

    _, written = translate(tmp_path, HEADER.format("nl") + plural, "nl")

    assert polib.pofile(written)[0].msgstr_plural == {0: "Een hond", 1: "%d DOGS"}


def test_a_header_says_its_own_plural_forms(tmp_path: Path) -> None:
    rule = "nplurals=3; plural=(n==1 ? 0 : n==2 ? 1 : 2);"
    header = HEADER.format("fr").replace("\n\n", f'\n"Plural-Forms: {rule}\\n"\n\n')
    plural = 'msgid "A dog"\nmsgid_plural "%d dogs"\nmsgstr[0] ""\nmsgstr[1] ""\n'

    _, written = translate(tmp_path, header + plural)

    texts = polib.pofile(written)[0].msgstr_plural
    assert texts == {0: "A DOG", 1: "%d DOGS", 2: "%d DOGS"}
    assert rule in written


@pytest.mark.parametrize(
    "rule",
    ["nplurals=2; plural=n/0", "nplurals=2; plural=n", "nplurals=0; plural=0", "x", "n" * 9_999],
)
def test_plural_forms_that_make_no_sense(tmp_path: Path, rule: str) -> None:
    header = HEADER.format("fr").replace("\n\n", f'\n"Plural-Forms: {rule}\\n"\n\n')
    plural = 'msgid "A dog"\nmsgid_plural "%d dogs"\nmsgstr[0] ""\nmsgstr[1] ""\n'

    _, written = translate(tmp_path, header + plural)

    assert polib.pofile(written).metadata["Plural-Forms"] == plural_forms("fr").rule


def test_lines_of_a_message(tmp_path: Path) -> None:
    usage = (
        r"\nUsage: %s FILE\n\n  -v, --verbose   say more\n  -h              print this\n"
        r"The dog is\nrunning.\n"
    )

    fragments, written = translate(tmp_path, HEADER.format("fr") + message(usage, "c-format"))

    shouted_usage = (
        "\nUSAGE: %s FILE\n\n  -v, --verbose   SAY MORE\n  -h              PRINT THIS\n"
        "THE DOG IS\nRUNNING.\n"
    )
    assert polib.pofile(written)[0].msgstr == shouted_usage
    assert re.search(r"The dog is <x[^>]*> running", fragments[0])
    assert '\n"  -v, --verbose   SAY MORE\\n"\n' in written


@pytest.mark.parametrize(
    ("flags", "msgid", "fragment", "expected"),
    [
        ("", r"A dog.\r\nA cat.\r\n", 'A dog.<br id="2"/>A cat.', r"A DOG.\r\nA CAT.\r\n"),
        ("", r"- dog\r\n- cat\r", 'dog<br id="2"/><x id="-2"/>cat', r"- DOG\r\n- CAT\r"),
        ("", r"A dog\rA cat", 'A dog<br id="2"/>A cat', r"A DOG\rA CAT"),
        ("", r"A dog\vA cat\f", 'A dog<br id="2"/>A cat', r"A DOG\vA CAT\f"),
        ("", r"A dog \a runs", 'A dog <x id="2"/> runs', r"A DOG \a RUNS"),
        ("java-printf-format", "A dog.%nA cat%n", 'A dog.<br id="2"/>A cat', "A DOG.%nA CAT%n"),
        ("lisp-format", "A dog~%A cat~%", 'A dog<br id="2"/>A cat', "A DOG~%A CAT~%"),
        ("scheme-format", "~&A dog", "A dog", "~&A DOG"),
    ],
)
def test_line_breaks_and_controls_stay(
    tmp_path: Path, flags: str, msgid: str, fragment: str, expected: str
) -> None:
    fragments, written = translate(tmp_path, message(msgid, flags))

    assert fragments == [fragment]
    assert polib.pofile(written)[0].msgstr == polib.unescape(expected)


def test_quotes_and_apostrophes_of_gcc(tmp_path: Path) -> None:
    text = message("%qs isn%'t %<if%> or %<%s%>", "gcc-internal-format")

    fragments, written = translate(tmp_path, text, change=lambda fragment: fragment)

    assert "isn't" in fragments[0] and "%&lt;if%&gt;</k> or" in fragments[0]
    assert polib.pofile(written)[0].msgstr == "%qs isn%'t %<if%> or %<%s%>"


def test_characters_that_no_text_has(tmp_path: Path) -> None:
    _, written = translate(tmp_path, message("a \ufdd0 dog \uffff"))

    assert "\ufdd0" in polib.pofile(written)[0].msgstr


def test_icu_messages(tmp_path: Path) -> None:
    text = "You have {n, plural, offset:1 =0 {no dogs} one {# dog in {place}} other {# dogs}} here."

    _, written = translate(tmp_path, message(text))

    assert polib.pofile(written)[0].msgstr == (
        "YOU HAVE {n, plural, offset:1 =0 {NO DOGS} one {# DOG IN {place}} other {# DOGS}} HERE."
    )


@pytest.mark.parametrize("is_wrapped", [True, False])
def test_long_lines_are_wrapped_where_the_file_wraps_them(tmp_path: Path, is_wrapped: bool) -> None:
    other = message("a" if is_wrapped else "many words " * 20, msgstr="b")
    source = HEADER.format("fr") + other + message("dog")

    _, written = translate(tmp_path, source, change=lambda _: "mot " * 40)

    lines = written[len(HEADER.format("fr") + other) :].splitlines()
    assert (max(map(len, lines)) < 80) is is_wrapped
    assert polib.pofile(written)[-1].msgstr == "mot " * 40


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nothing", "line 1: no statement"),
        ('msgid "a\nmsgstr ""\n', "line 1: no statement"),
        ('msgid "a"\n', "needs msgid and msgstr"),
        ('msgstr "a"\n', "needs msgid and msgstr"),
        ('msgid "a"\nmsgid "b"\nmsgstr ""\n', "msgid again"),
        ("# a comment\n", "no messages"),
        ("", "no messages"),
        ('msgid "a"\nmsgstr[0] ""\nmsgstr[x] ""\n', "line 3: no statement"),
    ],
)
def test_broken_files(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "a.po"
    path.write_text(text)

    with pytest.raises(RequestError, match=reason):
        read_document(path, path.name)


def test_only_the_worse_translations_are_fuzzy(tmp_path: Path) -> None:
    plural = 'msgid "{n} dog"\nmsgid_plural "{n} dogs"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    texts = [message("a dog"), message("a cow", "fuzzy, c-format", "x"), plural]
    path = tmp_path / "a.po"
    path.write_text("\n".join(texts))
    document = read_document(path, path.name)
    assert isinstance(document, ReviewedDocument)
    document.review = Review([0.4, 0.5, 0.9, 0.1], 0.5, "m")

    document.write([*document.fragments], path, "fr")

    flags = {entry.msgid: entry.flags for entry in polib.pofile(str(path))}
    assert flags == {"a dog": ["fuzzy"], "a cow": ["c-format"], "{n} dog": ["fuzzy"]}
