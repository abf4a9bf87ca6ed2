"""The words that a translator knows: frequent ones, and rare ones that are no names."""

from models.data.corpus import MOST_COPIED, SentencePair, known_words


def known(texts: list[str], target: str = "") -> set[str]:
    words = known_words(SentencePair("a", text, target) for text in texts)
    assert words == sorted(words)
    return {*words}


def test_frequent_words_and_rare_ones_in_small_letters_are_known() -> None:
    texts = ["The dog saw Ann. Ann ran.", "THE cat, the rat's hat, an x-ray"] * 2 + [
        "Ann Bob a fad"
    ]
    actual = known(texts)
    assert {"the", "Ann", "dog", "rat's", "x-ray"} <= actual
    assert not {"Bob", "fad", "The", "THE", "ann"} & actual


def test_a_words_usual_writing_is_not_that_of_beginnings() -> None:
    texts = ["Will he? Tom will.", "Will NASA call Will?", "I said: Oh. Tom and I will."] * 5
    assert {"will", "Tom", "NASA", "I"} <= known(texts)
    assert {"please", "go"} <= known(["Go, please. I go. Please go! Please."] * 5)


def test_names_that_are_always_copied_are_known_once_they_are_very_frequent() -> None:
    texts = ["Here is Julia in London"] * 9
    assert {"Julia", "London"} <= known(texts, "Julie est à Londres")
    actual = known(texts, "Julia est à Londres")
    assert "London" in actual
    assert "Julia" not in actual
    assert "Julia" in known(texts * MOST_COPIED, "Julia est à Londres")
