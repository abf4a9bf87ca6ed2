"""Terms in texts: where they occur, and that they are looked up by a word that is there."""

import pytest

from serving.text.terms import TextWords, first_word, term_pattern


@pytest.mark.parametrize(
    ("term", "text", "occurs"),
    [
        ("dog", "A Dog.", True),
        ("dog", "dogma", False),
        ("dog", "hot-dog stand", True),
        ("New York", "in new york", True),
        ("C++", "C++ and C", True),
        ("C", "C++", True),
        ("-x", "a -x", True),
        ("-x", "a-x", False),
        ("%&", "a%&b", False),
        ("%&", "5 %& 6", True),
        ("猫", "私の猫は", True),
        ("API", "このAPIは", True),
        ("서울", "서울은", True),
        ("straße", "Die STRAßE", True),
    ],
)
def test_where_a_term_occurs(term: str, text: str, occurs: bool) -> None:
    assert bool(term_pattern(term).search(text)) == occurs
    if occurs:
        assert first_word(term) in TextWords(text).first_words()
        assert TextWords(text).may_have(term)


def test_the_words_of_a_term_follow_each_other() -> None:
    words = TextWords("One two, three four five six seven eight nine ten.")
    assert words.may_have("two three") and words.may_have("TWO-three")
    assert not words.may_have("one three") and not words.may_have("ten eleven")
    assert words.may_have("one two three four five six seven eight NINE")
