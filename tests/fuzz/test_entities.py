"""Texts with entities, tags, numbers and odd characters: both protocols, all formats, no 5xx.

FUZZ_BODIES says of how many bodies each protocol gets; without it a few hundred.
"""

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.serving.api.conftest import made_world
from tests.serving.pipelines.fakes import byte_tokenizer
from tests.serving.text.protection.garbling import garbling_translator
from tests.serving.text.protection.random_texts import made_texts

BODIES = int(os.environ.get("FUZZ_BODIES", "0"))
FEW = 150
MODELS = {"fr": "shout", "es": "garble", "de": "garble without attention"}

ENTITIES = [
    *("&amp;", "&lt;", "&gt;", "&quot;", "&apos;", "&nbsp;", "&euro;", "&pound;"),
    *("&copy;", "&#0;", "&#x0;", "&#10;", "&#13;", "&#39;", "&#65;", "&#128;"),
    *("&#xD800;", "&#xDFFF;", "&#xFFFE;", "&#x10FFFF;", "&#x110000;"),
    *("&#99999999999;", "&#x;", "&#;", "&;", "&", "&&", "&unknown;", "&amp", "&lt"),
    *("&nbsp", "&amp;amp;", "&amp;lt;b&amp;gt;", "&notit;", "&ampere", "&shy;"),
    *("&zwj;", "&rlm;", "&frac12;", "&hellip;", "&times;", "&#x20ac;", "&#8364;5"),
    *("&sect;", "&NewLine;", "&Tab;", "&nGt;", "&CounterClockwiseContourIntegral;"),
    *("&acE;", "&dollar;", "&num;7", "&percnt;", "&period;", "&commat;"),
    *("&lbrace;x&rbrace;", "&#49;&#50;", "&#x1F600;"),
]
TAGS = [
    *("<b>", "</b>", "<i>", "</i>", "<p>", "</p>", "<br>", "<br/>", "<div>"),
    *("</div>", "<x/>", "<code>", "</code>", "<span translate=no>"),
    *("<span translate='no'>", "</span>", "<a", "</", "<a href='x'>"),
    *('<a href="y?a=1&b=2">', "<a href=&euro;>", "</a>", "<!-- c -->", "<!--"),
    *("-->", "<![CDATA[ 5 < 6 ]]>", "<![CDATA[", "]]>", "<?pi?>", "<?"),
    *("<!DOCTYPE html>", "<!ENTITY a 'b'>", "<script>", "</script>", "<style>"),
    *("</style>", "<pre>", "</pre>", "<textarea>", "<title>", "<table><tr>"),
    *("<td>", "<li>", "<ruby>", "<b/>", "< b>", "<1>", "<>", "<ns:t>", "</ns:t>"),
    *("<t", ">", "<", "<B CLASS=x>", "<keep>", "</keep>", "<split>", "</split>"),
    *("<g id='1'>", "</g>", "<svg><path d='M0 1'/></svg>", "<b a=1 a=2>"),
    *("<img alt='a dog' src=x>", "<input value=5>"),
]
UNITS = [
    *("5", "€", "$", "€5", "5 €", "$3.50", "1,000", "3.5 kg", "5 p.m.", "12:05 am"),
    *("0:00 pm", "½", "1950-51", "9:00-17:00", "#7-8", "X1", "X2", "X1 X1"),
    *("{n, plural, one {# dog} other {}}", "{n", "{}", "{{", "}}", "%s", "%", "%%"),
    *("${a.b}", "https://a.b/c?d=1&e=2", "a@b.co", "@a", "`", "``", "`a`", "C++"),
    *("List<String>", "<Ctrl+S>", "x < 5", "->", "- [ ] a", "a)", "**", "**b**"),
    *("[a](b)", "999999999999999999999999", "1.", ".5", "5.", "1,2,3"),
    *("1.000.000,5", "٣", "１２", "²", "Ⅷ", "🙂", "👨‍👩‍👧", "🇫🇷", "🇫", "\u200d"),
    *("\ufe0f", "1️⃣", "§", "©", "™", "°C", "--", "—", "…", "+33 1", "00:1A:2B"),
]
ODD = [
    *("\ud800", "\udfff", "\0", "\x07", "\x1b[0m", "\x7f", "\x85", "\u2028"),
    *("\u2029", "\ufeff", "\ufffd", "\u200b", "\u200e", "\u202e", "\u2066"),
    *("\u2069", "\u00ad", "\u2060", "\u00a0", "\u202f", "\u3000", "\r\n", "\r"),
    *("\n", "\n\n", "\t", "\v", "\f", "\x1c", "e\u0301", "\u0301", "\uffff"),
    *("\U0010ffff", "猫", "שלום", "مرحبا", "ﬁ", "ß", "İ", "ǅ", "a" * 300),
    *("x1" * 150, "9" * 200, "&" * 90, "<" * 90, "<b>" * 60, "</b>" * 60),
    *("&amp;" * 60, "{" * 60, "\u0301" * 60, "€" * 60, " " * 90, "-" * 90),
]
WORDS = [
    "a",
    "dog",
    "Fish",
    "runs",
    "Mary",
    "Kowalczyk",
    "DOGS",
    "RUN",
    "FAST",
    "it's",
    ".",
    "!",
    ",",
]

_piece = st.one_of(*map(st.sampled_from, [ENTITIES, TAGS, UNITS, WORDS, WORDS, WORDS]))
_pieces = st.lists(st.tuples(_piece | st.sampled_from(ODD), st.sampled_from(["", " ", " "])))
TEXTS = st.one_of(
    st.lists(st.tuples(_piece, st.sampled_from(["", " ", " "])), max_size=14),
    _pieces,
).map(lambda pairs: "".join(piece + space for piece, space in pairs))
WELL_FORMED = st.recursive(
    st.lists(st.sampled_from(ENTITIES[:9] + WORDS + ["5", "$3", "&#49;", "<x/>"]), max_size=6).map(
        " ".join
    ),
    lambda inner: st.tuples(st.sampled_from(["b", "p", "keep", "split", "ns:t"]), inner, inner).map(
        lambda t: f"<{t[0]}>{t[1]}</{t[0]}> {t[2]}"
    ),
    max_leaves=6,
)
SIGNS = st.text("<>&;#/!?-'\"=[]{}()%$€£@.,:+*`~^_| \n0159axXptn", max_size=60)
ANY = TEXTS | WELL_FORMED | SIGNS | made_texts(most_units=3).map(lambda made: made.text)
_flag = st.booleans()
_tags = st.lists(
    st.sampled_from(["b", "p", "keep", "split", "ns:t", "x", "code", "", "&amp;", "é"])
)


def _fields(needed: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(needed, optional=optional)


LIBRETRANSLATE = _fields(
    {
        "q": ANY | st.lists(ANY, max_size=3),
        "source": st.sampled_from(["en", "en", "auto"]),
        "target": st.sampled_from([*MODELS]),
        "format": st.sampled_from(["text", "html"]),
    },
    {
        "protect": _flag,
        "placeholders": _flag | st.lists(_piece, max_size=2),
        "glossary": st.dictionaries(_piece, _piece, max_size=2),
        "target_prefix": _piece,
        "alternatives": st.integers(0, 2),
        "alignments": _flag,
        "return_attention": _flag,
        "replace_unknown": _flag,
        "return_scores": _flag,
        "stream": _flag,
    },
)
DEEPL = _fields(
    {
        "text": st.lists(ANY, min_size=1, max_size=3),
        "target_lang": st.sampled_from(["FR", "ES", "DE"]),
    },
    {
        "source_lang": st.just("EN"),
        "tag_handling": st.sampled_from(["html", "xml"]),
        "split_sentences": st.sampled_from(["0", "1", "nonewlines"]),
        "preserve_formatting": _flag,
        "outline_detection": _flag,
        "ignore_tags": _tags,
        "splitting_tags": _tags,
        "non_splitting_tags": _tags,
        "context": ANY,
        "model_type": st.sampled_from(["quality_optimized", "latency_optimized"]),
    },
)
PATHS = {"/translate": LIBRETRANSLATE, "/v2/translate": DEEPL}
Ask = Callable[[str, dict[str, Any]], httpx.Response]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    others = [
        garbling_translator(tokenizer, 1, "es", changes_stand_ins=True)[0],
        garbling_translator(tokenizer, 2, "de", num_heads=0, name=MODELS["de"])[0],
    ]
    with asyncio.Runner() as runner:
        making = made_world(tokenizer, others=others)
        world = runner.run(making.__aenter__())
        yield lambda path, body: runner.run(
            world.client.post(
                path, content=json.dumps(body), headers={"content-type": "application/json"}
            )
        )
        runner.run(making.__aexit__(None, None, None))


@pytest.mark.timeout(max(300, BODIES))
@pytest.mark.parametrize("path", PATHS)
def test_no_text_is_answered_with_a_5xx(ask: Ask, path: str) -> None:
    def is_answered(body: dict[str, Any]) -> None:
        answer = ask(path, body)
        assert answer.status_code < 500, (answer.text, json.dumps(body))
        assert "internal error" not in answer.text, json.dumps(body)  # of a stream

    settings(
        max_examples=BODIES or FEW,
        derandomize=not BODIES,
        database=None,
        suppress_health_check=list(HealthCheck),
    )(given(PATHS[path])(lambda body: is_answered(body)))()


@pytest.mark.parametrize(
    "text", ["Fish &amp; chips &lt;now&gt; cost 5 &euro;.", "&euro;5", "&pound; 3", "5&nbsp;&yen;"]
)
@pytest.mark.parametrize("markup", ["html", "xml", None])
def test_currencies_as_entities(ask: Ask, text: str, markup: str | None) -> None:
    if markup == "xml":
        text = text.replace("&euro;", "&#8364;").replace("&pound;", "&#163;")
        text = text.replace("&yen;", "&#xA5;").replace("&nbsp;", "&#160;")
    body = {"text": [text], "target_lang": "FR", "tag_handling": markup}
    answer = ask("/v2/translate", {key: value for key, value in body.items() if value})
    assert answer.status_code == 200, answer.text
