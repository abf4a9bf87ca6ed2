r"""Escapes between words part them or are letters of them; what only looks like one stays."""

import pytest

from serving.text.markup.escapes import read_escapes
from serving.text.markup.tokens import Role, Token, join_raw, text_tokens
from tests.serving.text.markup.fake_model import HTML, by_table, layout, translate


def tokens_of(text: str) -> list[Token]:
    tokens = [*read_escapes(text_tokens(text, False, True))]
    assert join_raw(tokens) == text
    return [token for token in tokens if token.raw != token.text]


@pytest.mark.parametrize(
    ("text", "role", "raw"),
    [
        (r"A dog.\nA cat", Role.LINE_BREAK, r"\n"),
        (r"A dog.\r\nA cat", Role.LINE_BREAK, r"\r\n"),
        (r"A dog.\n\n A cat", Role.LINE_BREAK, r"\n\n "),
        (r"A dog. \n A cat", Role.LINE_BREAK, r" \n "),
        (r"a dog \n\n and", Role.LINE_BREAK, r" \n\n "),
        (r"A dog.\\nA cat", Role.LINE_BREAK, r"\\n"),
        (r"a dog\rand", Role.LINE_BREAK, r"\r"),
        (r"dog\tcat", Role.BREAK, r"\t"),
        (r"dog\n\tcat", Role.BREAK, r"\n\t"),
        (r"dog\u000acat", Role.LINE_BREAK, r"\u000a"),
    ],
)
def test_escapes_of_lines_and_columns(text: str, role: Role, raw: str) -> None:
    assert [(token.role, token.raw) for token in tokens_of(text)] == [(role, raw)]


@pytest.mark.parametrize(
    ("text", "read_as"),
    [
        (r"a \"dog\" and the man\'s", 'a "dog" and the man\'s'),
        (r"caf\u00e9 \U000000e9 \u{e9} \xe9 \xc3\xa9 \303\251", "café é é é é é"),
        (r"\u201cdog\u201d \N{BULLET} \ud83d\ude00", "“dog” • 😀"),
        (r"\U00e9t\U00e9", "été"),
        (r"1\/2", "1/2"),
    ],
)
def test_escapes_are_letters(text: str, read_as: str) -> None:
    tokens = read_escapes(text_tokens(text, False, True))
    assert "".join(token.text for token in tokens) == read_as


@pytest.mark.parametrize("text", [r"use \n for it", r"press \t.", r"a (\n)", r'or "\t" here'])
def test_an_escape_that_a_sentence_speaks_of_is_kept(text: str) -> None:
    tokens = read_escapes(text_tokens(text, False, True))
    assert [token.raw[:1] for token in tokens if token.role is not Role.TEXT] == ["\\"]


@pytest.mark.parametrize(
    "text",
    [
        *(r"C:\new\table.txt", r"c:\\new\\table.txt", r"\\server\new\x", r"%TEMP%\new", r"..\new"),
        *(r"C:\Program Files\new\table.txt", r"D:\My Documents (old)\next", r"HKLM\Software\new"),
        *(r"dogs\new.txt", r"App\Models\name", r"src\main\test", r"~\new", r"$env:TEMP\new"),
        *(
            r"\alpha and \beta",
            r"\nu",
            r"\textbf{dog}",
            r"\section{The dogs}",
            r"\theta_1",
            r"\rho",
        ),
        *(r"$\nu + \tau$", r"\(n \times t\)", r"\frac{a}{b}", r"\d+\w", r"\s", "\\", r"a\b"),
        *(r"\u00zz", r"\N{NO SUCH NAME}", r"\ud83d", r"\x4", r"dog\-cat"),
    ],
)
def test_what_is_no_escape(text: str) -> None:
    assert tokens_of(f"See {text} here") == []


@pytest.mark.parametrize(
    ("text", "translation"),
    [
        (r"dog.\nCat.\n", r"chien.\nchat.\n"),
        (r"\tdog\tCat", r"\tchien\tchat"),
        (r"\n\ndog", r"\n\nchien"),
        (r"dog in\nsnow", r"chien dans\nneige"),
        (r"It is a \"dog\"", r"It is a \"chien\""),
        (r"caf\u00e9 dog", r"th\u00e9 chien"),
        (r"C:\new dog", r"C:\new chien"),
    ],
)
def test_escapes_come_back(text: str, translation: str) -> None:
    words = {"dog": "chien", "dog.": "chien.", "Cat.": "chat.", "Cat": "chat", '"dog"': '"chien"'}
    words |= {"in": "dans", "snow": "neige", "café": "thé"}
    assert translate(layout(text, protection=True), by_table(words)) == translation


def test_quotes_that_are_references_are_escaped_too() -> None:
    text = r"<p>a \&quot;dog\&quot; \</p>"
    written_as = r"<p>a \&quot;chien\&quot; \</p>"
    assert translate(layout(text, HTML, True), by_table({'"dog"': '"chien"'})) == written_as
