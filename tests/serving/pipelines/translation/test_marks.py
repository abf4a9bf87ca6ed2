"""Jobs with marks: what models read, what they are asked, and what is put together again."""

from typing import Any

import pytest

from serving.errors import RequestError
from serving.pipelines.translation.job import TranslationJob
from serving.text.markup.known_words import KnownWords
from serving.text.markup.tokens import Markup, MarkupKind
from serving.text.sentences import Splitting
from serving.text.tokenizer import Tokenizer
from tests.serving.pipelines.fakes import FakeEngine, shouting_translator

HTML, XML = Markup(MarkupKind.HTML), Markup(MarkupKind.XML)


async def shout(
    tokenizer: Tokenizer, *texts: str, num_heads: int = 4, **options: Any
) -> tuple[tuple[str, ...], FakeEngine]:
    pipeline, engine = shouting_translator(tokenizer, num_heads=num_heads)
    translation = await pipeline.run(TranslationJob("job", texts, "en", "fr", **options))
    return translation.texts, engine


def sources(tokenizer: Tokenizer, engine: FakeEngine) -> list[str]:
    return [tokenizer.decode(request.source_ids or ()) for request in engine.requests]


@pytest.mark.parametrize("num_heads", [0, 4])
async def test_tags_leave_the_text_and_come_back(tokenizer: Tokenizer, num_heads: int) -> None:
    text = "<p>a <b class='x'>b &amp; c</b>, d.</p>\n<p>e <i>f</i><br>g</p>"
    [translated], engine = await shout(tokenizer, text, markup=HTML, num_heads=num_heads)
    assert translated == "<p>A <b class='x'>B &amp; C</b>, D.</p>\n<p>E <i>F</i><br>G</p>"
    assert sources(tokenizer, engine) == ["a b & c, d.", "e f", "g"]


async def test_attention_is_asked_where_marks_need_it(tokenizer: Tokenizer) -> None:
    text = "<p>plain</p><p><b>all of it</b></p><p>a <b>part</b></p><p>a <code>b</code></p>"
    _, engine = await shout(tokenizer, text, markup=HTML)
    assert [request.alignment_heads is not None for request in engine.requests] == [
        False,
        False,
        True,
        True,
    ]
    _, engine = await shout(tokenizer, "plain", "at a.com", "in 1984", protection=True)
    assert [request.alignment_heads is not None for request in engine.requests] == [
        False,
        True,
        True,
    ]


async def test_without_marks_a_tag_is_text(tokenizer: Tokenizer) -> None:
    [translated], engine = await shout(tokenizer, "a <b>c</b> a@b.com")
    assert translated == "A <B>C</B> A@B.COM"
    assert not any(request.alignment_heads is not None for request in engine.requests)


async def test_what_is_protected_is_as_it_was(tokenizer: Tokenizer) -> None:
    text = "see http://a.b/c?d=e, {name}:  **b** 3.5 kg!\n\n- 12\n- ``` x\n# end 🙂 ok"
    [translated], engine = await shout(tokenizer, text, protection=True)
    assert translated == "SEE http://a.b/c?d=e, {name}: **B** 3,5 kg!\n\n- 12\n- ``` X\n# END 🙂 OK"
    assert sources(tokenizer, engine)[0] == "see %1: b %2!"


async def test_named_placeholders_are_kept_among_marks(tokenizer: Tokenizer) -> None:
    options: dict[str, Any] = {"markup": HTML, "placeholders": ("new york",)}
    [translated], _ = await shout(tokenizer, "in <b>new york</b> now", **options)
    assert translated == "IN <b>new york</b> NOW"


async def test_names_that_a_model_does_not_know_are_kept(tokenizer: Tokenizer) -> None:
    known_words = KnownWords(["i", "met"])
    pipeline, engine = shouting_translator(tokenizer, known_words=known_words)
    for protection, expected in ((True, "I MET Kofi Okafor."), (False, "I MET KOFI OKAFOR.")):
        job = TranslationJob("job", ("I met Kofi Okafor.",), "en", "fr", protection=protection)
        assert (await pipeline.run(job)).texts == (expected,)
    assert sources(tokenizer, engine) == ["I met %1.", "I met Kofi Okafor."]


async def test_names_in_capitals_are_read_with_one(tokenizer: Tokenizer) -> None:
    pipeline, engine = shouting_translator(
        tokenizer, known_words=KnownWords(["Tom", "saw", "NASA"])
    )
    job = TranslationJob("job", ("TOM SAW NASA.",), "en", "fr", protection=True)
    assert (await pipeline.run(job)).texts == ("TOM SAW NASA.",)
    assert sources(tokenizer, engine) == ["Tom saw NASA."]


async def test_capitals_are_read_in_small_letters(tokenizer: Tokenizer) -> None:
    [translated], engine = await shout(tokenizer, "DO I SEE <b>THE DOG</b>?", protection=True)
    assert translated == "DO I SEE <b>THE DOG</b>?"
    assert sources(tokenizer, engine) == ["Do I see the dog?"]
    _, engine = await shout(tokenizer, "USA", protection=True)
    assert sources(tokenizer, engine) == ["USA"]


@pytest.mark.parametrize(
    ("splitting", "expected"),
    [
        (Splitting.SENTENCES, ["one.", "two", "three"]),
        (Splitting.NO_NEWLINES, ["one.", "two three"]),
        (Splitting.NONE, ["one. two three"]),
    ],
)
async def test_where_texts_are_cut(
    tokenizer: Tokenizer, splitting: Splitting, expected: list[str]
) -> None:
    _, engine = await shout(tokenizer, "one. two\n three", splitting=splitting)
    assert sources(tokenizer, engine) == expected


async def test_spaces_between_sentences_are_kept(tokenizer: Tokenizer) -> None:
    text = "  one.   two.\t\n\n three\u00a0. "
    [translated], _ = await shout(tokenizer, text, protection=True)
    assert translated == text.upper().replace("\u00a0", " ")  # it is read as a space


@pytest.mark.parametrize(
    "text",
    [
        *("<a>b", "&nbsp;", "a & b", "</fragment>", "<a>\ufeff</b>"),
        *("<!DOCTYPE a [<!ENTITY b 'c'>]><a/>", "<!DOCTYPE a [<!-- c --><!ENTITY % b 'c'>]><a/>"),
        "<!DOCTYPE a [%b;]><a/>",
    ],
)
async def test_what_is_no_xml_is_refused(tokenizer: Tokenizer, text: str) -> None:
    with pytest.raises(RequestError, match="text: is not well-formed XML"):
        await shout(tokenizer, text, markup=XML)


PROLOGS = (
    '\ufeff<?xml version="1.0"?>',
    "\ufeff<!DOCTYPE a>",
    '<?xml version="1.0" encoding="UTF-16"?>\n<?page x?>\n<!-- <a> -->\n<!DOCTYPE a SYSTEM "a">\n',
    "<!DOCTYPE a [<!-- <!ENTITY b 'c'> 50% isn't one --><!ELEMENT a ANY>]>",
    '<!DOCTYPE a [<!ATTLIST a width CDATA "50%"><?tool <!ENTITY?>]>',
)


@pytest.mark.parametrize("prolog", PROLOGS)
async def test_what_stands_before_an_xml_document_stays(tokenizer: Tokenizer, prolog: str) -> None:
    [translated], _ = await shout(tokenizer, f"{prolog}<a>one two</a>", markup=XML)
    assert translated == f"{prolog}<a>ONE TWO</a>"


async def test_branches_of_messages_are_translated(tokenizer: Tokenizer) -> None:
    text = "you have {n, plural, one {# dog} other {# of {x} dogs}}, {g, select, other {b}}."
    [translated, other], _ = await shout(tokenizer, text, "a {y}", protection=True)
    message = "{n, plural, one {# DOG} other {# OF {x} DOGS}}, {g, select, other {b}}."
    assert translated == f"YOU HAVE {message}"
    assert other == "A {y}"
