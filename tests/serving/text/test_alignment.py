"""From tokens to words: where tokens lie in a text, and which words attend to which."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.text.alignment import (
    DRAWN_WORD,
    Link,
    TokenizedText,
    find_words,
    format_pharaoh,
    link_words,
    word_attention,
)
from serving.text.spans import Span


def tokens(*pieces: str | bytes) -> TokenizedText:
    return TokenizedText.from_pieces(p.encode() if isinstance(p, str) else p for p in pieces)


@st.composite
def cut_texts(draw: st.DrawFn) -> list[bytes]:
    """The bytes of a text, or any bytes, cut anywhere; some pieces are empty."""
    data = draw(st.text().map(str.encode) | st.binary())
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    ends = [0, *cuts, len(data)]
    return [data[start:end] for start, end in itertools.pairwise(ends)]


def test_tokens_lie_where_their_characters_are() -> None:
    text = tokens("Un", " été", ", ", "", "ça")
    assert text.text == "Un été, ça"
    assert text.spans == (Span(0, 2), Span(2, 6), Span(6, 8), Span(8, 8), Span(8, 10))


def test_tokens_that_share_a_character_all_hold_it() -> None:
    snowman = "☃".encode()
    text = tokens(b"a" + snowman[:1], snowman[1:2], b"", snowman[2:] + b"b", b"c")
    assert text.text == "a☃bc"
    assert text.spans == (Span(0, 2), Span(1, 2), Span(1, 1), Span(1, 3), Span(3, 4))


@given(cut_texts())
def test_the_text_is_what_the_bytes_decode_to(pieces: list[bytes]) -> None:
    text = TokenizedText.from_pieces(pieces)
    assert text.text == b"".join(pieces).decode(errors="replace")
    assert len(text.spans) == len(pieces)


@given(cut_texts())
def test_together_the_tokens_cover_the_text_in_order(pieces: list[bytes]) -> None:
    text = TokenizedText.from_pieces(pieces)
    spans = [span for span, piece in zip(text.spans, pieces, strict=True) if piece]
    assert all(start < end for start, end in spans)
    assert spans == sorted(spans)
    assert {i for span in spans for i in range(*span)} == set(range(len(text.text)))


@given(st.text(), st.data())
def test_a_token_of_whole_characters_holds_just_these(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text)))
    tokenized = tokens(text[:cut], text[cut:])
    assert tokenized.spans == (Span(0, cut), Span(cut, len(text)))


@given(st.text(alphabet=st.sampled_from("ab.,é ☃\t\n\u00a0\u3000")))
def test_words_are_those_of_split(text: str) -> None:
    assert [text[start:end] for start, end in find_words(text)] == text.split()


def test_a_words_attention_is_summed_over_source_and_averaged_over_target() -> None:
    source = tokens("The", " ki", "tten", " sleeps", "")  # "" is </s>
    target = tokens("Le", " chat", "on", " dort")
    attention = np.array(
        [
            [0.7, 0.1, 0.1, 0.0, 0.1],
            [0.1, 0.5, 0.2, 0.1, 0.1],
            [0.0, 0.3, 0.4, 0.3, 0.0],
            [0.0, 0.0, 0.1, 0.2, 0.7],
        ],
        np.float32,
    )
    matrix = word_attention(attention, target, source)
    expected = [[0.7, 0.2, 0.0], [0.05, 0.7, 0.2], [0.0, 0.1, 0.2]]
    assert np.allclose(matrix, expected, atol=1e-7)
    assert format_pharaoh(link_words(matrix)) == "0-0 1-1 2-2"


def test_a_token_in_two_words_belongs_to_each_by_its_characters() -> None:
    source = tokens("ab c", "d")
    target = tokens("x y", "y")
    matrix = word_attention(np.array([[0.6, 0.4], [0.0, 1.0]]), target, source)
    # Of the first source token 2 characters are in "ab" and 1 in "cd"; of the first target token
    # 1 is in "x" and 1 in "yy".
    assert np.allclose(matrix[0], [0.4, 0.2 + 0.4])
    assert np.allclose(matrix[1], [0.4 / 3, (0.6 + 2) / 3])


@given(st.data())
def test_no_attention_is_made_up(data: st.DataObject) -> None:
    source, target = (TokenizedText.from_pieces(data.draw(cut_texts())) for _ in range(2))
    seed = data.draw(st.integers(0, 1000))
    random = np.random.default_rng(seed)
    attention = random.dirichlet(np.ones(len(source.spans)), len(target.spans))
    matrix = word_attention(attention, target, source)
    assert matrix.shape == (len(find_words(target.text)), len(find_words(source.text)))
    assert (matrix >= 0).all() and (matrix.sum(axis=1) <= 1 + 1e-9).all()
    assert all(0 <= s < matrix.shape[1] for s, _ in link_words(matrix))


def test_links_name_the_source_first_and_come_in_its_order() -> None:
    matrix = np.array([[0.1, 0.9], [0.8, 0.1], [0.0, 0.0], [0.2, 0.7]])
    assert link_words(matrix) == [Link(0, 1), Link(1, 0), Link(1, 3)]
    assert format_pharaoh(link_words(matrix)) == "0-1 1-0 1-3"


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_without_words_there_are_no_links(shape: tuple[int, int]) -> None:
    assert link_words(np.zeros(shape)) == []
    assert format_pharaoh([]) == ""


def test_words_of_no_tokens_attend_to_nothing() -> None:
    nothing, something = tokens("", " "), tokens("a", " b")
    assert word_attention(np.ones((2, 2)), something, nothing).shape == (2, 0)
    assert word_attention(np.ones((2, 2)), nothing, something).shape == (0, 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("L'accord, signé en août 1992.", "L' accord , signé en août 1992 ."),
        ("Jusqu’à ce qu'il s'en aille !", "Jusqu’ à ce qu' il s' en aille !"),
        ("aujourd'hui, don't (it's 2.5)", "aujourd'hui , don't ( it's 2.5 )"),
        ("rendez-vous à 8:30...", "rendez-vous à 8:30 ..."),
        ("d' \t''", "d ' ''"),
        (" \n", ""),
    ],
)
def test_drawn_words(text: str, words: str) -> None:
    assert [text[slice(*span)] for span in find_words(text, DRAWN_WORD)] == words.split()
