"""Lines of one sentence, and lines that stand for themselves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.text.wrapped_lines import wrapped_breaks

# "~" stands for a break within a sentence, "|" for one that parts.
CASES = {
    "en": [
        "The children are playing in ~ the garden behind the ~ house.",
        "A man ~ is sitting on a bench.",
        "A man in a red shirt is ~ sitting on a bench",
        "A dog runs through the tall ~ grass",
        "He works for ~ Microsoft in Paris.",
        "I have ~ 3 dogs.",
        "We met Mr. ~ Smith there.",
        "Yesterday my friend and ~ I went home.",
        "- Buy milk and ~   bread. | - Sleep.",
        "Dear John, | Thank you for ~ your letter.",
        "Title |  | The text ~ is here.",
        "One dog runs. | Two cats sleep.",
        "Ingredients: | flour and sugar",
        "apples | red onions | milk",
        "Shopping list | whole milk | eggs",
        "to be | to do | to go",
        "i like my dog ~ and my cat",
        "in | the | of",
        "Home | About us | Contact",
        "Log in | Sign up | Turn off",
        "12 Main Street | Springfield | USA",
        "Roses are red, | Violets are blue.",
        "a) the dog | b) the cat",
        "name: bob | age: three",
        "dog   3 | cat   4",
        "Breaking news | A dog ran.",
        "Two young men in red shirts are playing football in a park near ~ Berlin with their"
        " friends and family members while the old sun ~ Apollo is shining.",
    ],
    "fr": ["Le chat dort sur ~ le canapé de l' ~ école.", "Bonjour, | Je vous écris."],
    "de": ["Die Kinder spielen im ~ Garten hinter dem ~ Haus.", "Melde dich an | Kontakt"],
    "es": ["Los niños juegan en ~ el jardín de la ~ casa.", "Leche | Pan"],
    "pt": ["As crianças brincam ~ no jardim.", "Leite | Pão"],
    "hy": ["Շունը վազում է։ | կատուն քնում է."],
    "xx": ["Abc def ~ ghi jkl.", "Abc | Def"],
}


@pytest.mark.parametrize(
    ("language", "text"), [(language, text) for language in CASES for text in CASES[language]]
)
def test_which_breaks_are_within_a_sentence(language: str, text: str) -> None:
    lines = text.replace(" ~ ", " | ").split(" | ")
    marks = [mark == "~" for mark in text.split(" ") if mark in ("~", "|")]
    assert wrapped_breaks(lines, language) == marks


@given(st.lists(st.text(max_size=20), max_size=8), st.sampled_from(["en", "zz"]))
def test_every_break_is_said_of(lines: list[str], language: str) -> None:
    assert len(wrapped_breaks(lines, language)) == max(len(lines) - 1, 0)
