"""The words that a translator knows: frequent ones, and rare ones that are no names."""

from models.data.words import known_words


def test_frequent_words_and_rare_ones_in_small_letters_are_known() -> None:
    texts = ["The dog saw Ann. Ann ran.", "THE cat, the rat's hat, an x-ray"] * 2 + [
        "Ann Bob a fad"
    ]
    known = known_words(texts)
    assert known == sorted(known)
    assert {"the", "Ann", "dog", "rat's", "x-ray"} <= {*known}
    assert not {"Bob", "fad", "The", "THE", "ann"} & {*known}


def test_a_words_usual_writing_is_not_that_of_beginnings() -> None:
    texts = ["Will he? Tom will.", "Will NASA call Will?", "I said: Oh. Tom and I will."] * 5
    assert {"will", "Tom", "NASA", "I"} <= {*known_words(texts)}
