"""The words that a translator knows: frequent ones, and rare ones that are no names."""

from models.data.words import known_words


def test_frequent_words_and_rare_ones_in_small_letters_are_known() -> None:
    texts = ["The dog saw Ann. Ann ran.", "THE cat, the rat's hat, an x-ray"] * 2 + [
        "Ann Bob a fad"
    ]
    known = known_words(texts)
    assert known == sorted(known)
    assert {"the", "ann", "dog", "rat's", "x-ray"} <= {*known}  # the third in capitals, once small
    assert not {"bob", "fad", "THE"} & {*known}
