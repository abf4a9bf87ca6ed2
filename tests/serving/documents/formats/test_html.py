"""Pages: what readers see is translated, in attributes too; all else is as it was."""

import random
import re
from pathlib import Path

import pytest

from serving.documents.formats.registry import read_document
from serving.text.markup.html_tokens import HtmlTokenKind, tag_attributes, tokenize_html
from tests.serving.documents.shouting import shout_file, shout_fragment

# A page in lower case, and what of it must be in capitals after a translation that shouts.
CASES = {
    "attributes": (
        '<p><img src="a.png" alt="a dog" title=\'the cat\'> <input placeholder="your name">'
        '<a href="/x" title="go there" aria-label="to the page" class="big">link</a></p>',
        '<p><img src="a.png" alt="A DOG" title=\'THE CAT\'> <input placeholder="YOUR NAME">'
        '<a href="/x" title="GO THERE" aria-label="TO THE PAGE" class="big">LINK</a></p>',
    ),
    "choices and buttons": (
        '<select name="s"><optgroup label="colours"><option value="r">red<option value="b">'
        'blue</optgroup></select><button type="submit">send it</button><input type="submit"'
        ' value="go on"><input type="hidden" value="secret"><input type="text" value="typed">',
        '<select name="s"><optgroup label="COLOURS"><option value="r">RED<option value="b">'
        'BLUE</optgroup></select><button type="submit">SEND IT</button><input type="submit"'
        ' value="GO ON"><input type="hidden" value="secret"><input type="text" value="typed">',
    ),
    "what is said of the page": (
        '<head><meta charset="utf-8"><meta name="description" content="a page of dogs"><meta'
        ' name="keywords" content="dog, big cat"><meta'
        ' content="dogs" property="og:title"><meta property="og:type" content="article"><meta'
        ' name="viewport" content="width=device-width"><title>dogs</title><link rel="stylesheet"'
        ' title="main" href="a.css"></head>',
        '<head><meta charset="utf-8"><meta name="description" content="A PAGE OF DOGS"><meta'
        ' name="keywords" content="DOG, BIG CAT"><meta'
        ' content="DOGS" property="og:title"><meta property="og:type" content="article"><meta'
        ' name="viewport" content="width=device-width"><title>DOGS</title><link rel="stylesheet"'
        ' title="main" href="a.css"></head>',
    ),
    "quotes and references in attributes": (
        "<img alt=\"a &quot;big&quot; dog &amp; cat\" title='it&#39;s big'><img alt=dog src=x>"
        '<img alt="" src=y><img alt=\'say "no"\'>',
        "<img alt=\"A &quot;BIG&quot; DOG &amp; CAT\" title='IT&#39;S BIG'><img alt=DOG src=x>"
        '<img alt="" src=y><img alt=\'SAY "NO"\'>',
    ),
    "a language of the page": (
        '<!doctype html>\n<!-- by hand -->\n<HTML LANG="en-GB" xml:lang=en><BODY><P>text</BODY>',
        '<!doctype html>\n<!-- by hand -->\n<HTML LANG="fr" xml:lang=fr><BODY><P>TEXT</BODY>',
    ),
    "a page without a language": ("<html class=x><p>text", '<html lang="fr" class=x><p>TEXT'),
    "what is not to be translated": (
        '<p>a <span translate="no" title="kept">kept <b>too</b></span> word</p><div class="x'
        ' notranslate"><p>kept</p></div><p translate=no>kept<p>a text',
        '<p>A <span translate="no" title="kept">kept <b>too</b></span> WORD</p><div class="x'
        ' notranslate"><p>kept</p></div><p translate=no>kept<p>A TEXT',
    ),
    "what is to be translated within": (
        '<div translate="no">kept <b translate="yes">this <i>text</i></b> kept <p translate="yes">'
        '<img alt="a dog">more <span class="notranslate">kept</span></p><img alt="kept"></div>end',
        '<div translate="no">kept <b translate="yes">THIS <i>TEXT</i></b> kept <p translate="yes">'
        '<img alt="A DOG">MORE <span class="notranslate">kept</span></p><img alt="kept"></div>END',
    ),
    "code and drawings": (
        "<p>run <code>make <b>it</b></code> or <kbd>ctrl</kbd> <svg><title>kept</title></svg>"
        ' now</p><pre title="shown">kept <b title="kept">code</b></pre><textarea placeholder="say"'
        ">typed</textarea><script>let text = '<p>kept</p>'</script><style>p { color: red }</style>"
        "<template><p>kept</p></template>",
        "<p>RUN <code>make <b>it</b></code> OR <kbd>ctrl</kbd> <svg><title>kept</title></svg>"
        ' NOW</p><pre title="SHOWN">kept <b title="kept">code</b></pre><textarea placeholder="SAY"'
        ">typed</textarea><script>let text = '<p>kept</p>'</script><style>p { color: red }</style>"
        "<template><p>kept</p></template>",
    ),
    "buttons within what is not to be translated": (
        '<p translate="no">press <button>ok</button> now</p><p>a text <button>ok</button></p>',
        '<p translate="no">press <button>ok</button> now</p><p>A TEXT <button>OK</button></p>',
    ),
    "lines that are seen": (
        '<pre translate="yes">a dog\n\n  the cat</pre><pre>kept\n  kept</pre>',
        '<pre translate="yes">A DOG\n\n  THE CAT</pre><pre>kept\n  kept</pre>',
    ),
    "what browsers read as text without tags": (
        "<noframes><p>kept &amp; <b>kept</b></p></noframes><xmp><p>kept</p></xmp><p>a text</p>",
        "<noframes><p>kept &amp; <b>kept</b></p></noframes><xmp><p>kept</p></xmp><p>A TEXT</p>",
    ),
    "comments for one browser": (
        "<!--[if IE]><p>kept</p><![endif]--><p>a <!-- note --> text</p><![if !IE]><p>shown</p>"
        "<![endif]><?php echo 'kept' ?>",
        "<!--[if IE]><p>kept</p><![endif]--><p>A <!-- note --> TEXT</p><![if !IE]><p>SHOWN</p>"
        "<![endif]><?php echo 'kept' ?>",
    ),
    "what templates fill in": (
        "<% if a > b %><p>Hello <%= a.name %>, you</p><% end %><p>a<%# note %> dog</p>",
        "<% if a > b %><p>HELLO <%= a.name %>, YOU</p><% end %><p>A<%# note %> DOG</p>",
    ),
    "characters": (
        "<p>&copy; we &mdash; you&nbsp;&amp; me &lt;3 it&rsquo;s &#8364;5 &hellip;</p>",
        "<p>&copy; WE &mdash; YOU&nbsp;&amp; ME &lt;3 IT&rsquo;S &#8364;5 &hellip;</p>",
    ),
    "capitals and what is not closed": (
        '<UL><LI>one<LI>two <B CLASS="x">bold</UL><TABLE><TR><TD>a cell<TD>more</TABLE>',
        '<UL><LI>ONE<LI>TWO <B CLASS="x">BOLD</UL><TABLE><TR><TD>A CELL<TD>MORE</TABLE>',
    ),
    "readings": (
        "<p>a <ruby>word<rp>(</rp><rt>kept</rt><rp>)</rp></ruby> here</p>",
        "<p>A <ruby>WORD<rp>(</rp><rt>kept</rt><rp>)</rp></ruby> HERE</p>",
    ),
}


def translate_page(tmp_path: Path, page: str) -> str:
    path, target = tmp_path / "a.html", tmp_path / "b.html"
    path.write_text(page, encoding="utf-8", newline="")
    shout_file(path, target)
    return target.read_bytes().decode()


@pytest.mark.parametrize("name", CASES)
def test_pages(tmp_path: Path, name: str) -> None:
    page, expected = CASES[name]

    assert translate_page(tmp_path, page) == expected


@pytest.mark.parametrize(
    ("page", "fragment", "translation", "expected"),
    [
        ("<p>super&shy;market</p>", "supermarket", "marché", "<p>marché</p>"),
        ("<p>a Long<wbr>Name.</p>", "a LongName.", "un LongName.", "<p>un Long<wbr>Name.</p>"),
        ("<p>tele\u200bphone</p>", "telephone", "telephone", "<p>tele\u200bphone</p>"),
        ("<p>an e&#8209;mail</p>", "an e-mail", "un e-mail", "<p>un e&#8209;mail</p>"),
        (
            "<p>of H<sub>2</sub>O</p>",
            'of <k id="2">H2O</k>',
            'en <k id="2">H2O</k>',
            "<p>en H<sub>2</sub>O</p>",
        ),
        (
            "<p>He is in<br>\n the park</p>",
            'He is in <x id="2"/>  the park',
            'Il est dans <x id="2"/> le parc',
            "<p>Il est dans<br> le parc</p>",
        ),
        (
            "<p>press <kbd>Ctrl</kbd>+<kbd>C</kbd> now</p>",
            'press <k id="2">Ctrl+C</k> now',
            'appuyez <k id="2">Ctrl+C</k>',
            "<p>appuyez <kbd>Ctrl</kbd>+<kbd>C</kbd></p>",
        ),
        (
            "<p>First verse<br>second verse of it</p>",  # as lines of a text are
            'First verse<br id="2"/>second verse of it',
            'Premier vers<br id="2"/>second vers',
            "<p>Premier vers<br>second vers</p>",
        ),
        ("<p>I.<br>Be</p>", 'I.<br id="2"/>Be', 'Je.<br id="2"/>Suis', "<p>Je.<br>Suis</p>"),
    ],
)  # fmt: skip
def test_characters_within_words(
    tmp_path: Path, page: str, fragment: str, translation: str, expected: str
) -> None:
    path, target = tmp_path / "a.html", tmp_path / "b.html"
    path.write_text(page, encoding="utf-8")
    document = read_document(path, path.name)
    assert [*document.fragments] == [fragment]

    document.write([translation], target, "fr")

    assert target.read_text(encoding="utf-8") == expected


def outline(page: str) -> list[str]:
    """The tags of a page, as they are written but for their attributes."""
    return [
        f"{token.kind.name} {token.name} {[each.name for each in tag_attributes(page, token)]}"
        for token in tokenize_html(page)
        if token.kind is not HtmlTokenKind.TEXT
    ]


def comparable(fragment: str) -> str:
    """A fragment without the numbers of its codes; line breaks are codes, as in any case."""
    return re.sub(r'<(br|x|g|k) id="\d+"', "<x", fragment).replace(" <x/> ", "<x/>")


PIECES = (
    *("a dog", " ", "runs.", "&amp;", "&nbsp", "&#", "<", ">", '"', "'", "é", "\r\n"),
    *("<p>", "</p>", "<b>", "</b>", "<i class='x'>", "</i>", "<br/>", "<div>", "<!--", "-->"),
    *("<img alt=dog>", '<img alt="', "<a title='a>b'>", "</a>", "<span translate=no>", "</span>"),
    *("<b translate=yes>", "<code>", "</code>", "<script>", "</script>", "<textarea>", "</div>"),
    *("<![CDATA[", "]]>", "<!doctype", "<?x", "</", "<sub>", "2", "</sub>", "<li>"),
)  # fmt: skip


@pytest.mark.parametrize("seed", range(300))
def test_pages_of_any_pieces(tmp_path: Path, seed: int) -> None:
    """However broken: nothing fails, tags stay, and what is translated is found again."""
    pick = random.Random(seed)
    page = "".join(pick.choice(PIECES) for _ in range(pick.randint(1, 40)))
    path, target = tmp_path / "a.html", tmp_path / "b.html"
    path.write_bytes(page.encode())

    fragments = shout_file(path, target)

    again = read_document(target, target.name).fragments
    assert [*map(comparable, again)] == [
        comparable(shout_fragment(fragment)) for fragment in fragments
    ]
    assert outline(target.read_bytes().decode()) == outline(page)


def test_tags_within_tags(tmp_path: Path) -> None:
    page = "<b>" * 3_000 + "deep" + "</b>" * 3_000 + " text"

    assert translate_page(tmp_path, page) == page.replace("deep", "DEEP").replace("text", "TEXT")


def test_a_sentence_goes_on_after_pictures_and_unknown_elements(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_text("<p>see <picture><source><img></picture> here <my-word>now</my-word></p>")

    [fragment] = read_document(path, path.name).fragments

    assert re.sub("<[^>]*>", "", fragment) == "see  here now"


@pytest.mark.parametrize("tag", ["<a ", "</a", "<!--", "<%", "<a b='"])
def test_tags_that_never_end_take_no_time(tmp_path: Path, tag: str) -> None:
    page = tag * 60_000  # took minutes for "</a"

    assert translate_page(tmp_path, page) == page


def test_a_value_without_quotes_that_becomes_several_words(tmp_path: Path) -> None:
    path, target = tmp_path / "a.html", tmp_path / "b.html"
    path.write_text("<img alt=dog>", encoding="utf-8")

    read_document(path, path.name).write(["un 'chien'"], target, "fr")

    assert target.read_text("utf-8") == "<img alt=un&#32;&#39;chien&#39;>"
