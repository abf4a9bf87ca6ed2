"""Made pairs: both sides alike, always the same for a seed, and what is copied is on both sides."""

import random
import re
from pathlib import Path

import pytest

from models.data.augmenting import KINDS, augment_pairs, mistype, title_case, without_apostrophes
from models.data.augmenting import MISTAKES as NOISES
from models.data.corpus import SentencePair, read_pairs
from models.data.synthetic import (
    NAME,
    TRAINING,
    drawn_phrase,
    made_pair,
    phrases,
    rename,
    replace_values,
)

EVERYDAY = Path(__file__).parents[2] / "data/everyday.tsv"
PAIRS = [
    SentencePair("a", "The 3 dogs ran 500 m.", "Les 3 chiens ont couru 500 m."),
    SentencePair("a", "Hello, world.", "Bonjour, le monde."),
    SentencePair("a", "I am here.", "Je suis là."),
    SentencePair("a", "It is late.", "Il est tard."),
    SentencePair("a", "On 2014-12-31 at 23:59", "Le 2014-12-31 à 23:59"),
    SentencePair("a", "Tom and Ann saw Tom.", "Tom et Ann ont vu Tom."),
]


def test_so_many_of_every_kind_and_always_the_same() -> None:
    counts = dict.fromkeys(KINDS, 7)
    made = augment_pairs(PAIRS, counts, seed=1)
    assert {kind: sum(p.origin == kind for p in made) for kind in KINDS} == counts
    assert made == augment_pairs(PAIRS, counts, seed=1)
    assert made != augment_pairs(PAIRS, counts, seed=2)


def test_phrases_come_in_several_writings_and_are_not_what_is_judged_by() -> None:
    judged = {pair.source for pair in read_pairs(EVERYDAY)}
    assert not judged & {source for source, _ in phrases()}
    rng = random.Random(0)
    drawn = {drawn_phrase(rng) for _ in range(20_000)}
    assert {("Hello.", "Bonjour."), ("hello", "Bonjour.")} <= drawn
    assert any(source.startswith("Hello. ") and "Bonjour. " in target for source, target in drawn)


def test_numbers_become_others_of_their_kind_on_both_sides() -> None:
    for seed in range(50):
        actual = replace_values(PAIRS[4].source, PAIRS[4].target, random.Random(seed))
        assert actual is not None
        numbers = [re.findall(r"\d+", side) for side in actual]
        assert numbers[0] == numbers[1]
        year, month, day, hour, minute = numbers[0]
        assert (len(year), len(month), len(day)) == (4, 2, 2)
        assert int(month) <= 12 and int(day) <= 31 and int(hour) <= 31 and int(minute) <= 59


def test_one_stays_one_and_differing_sides_are_left_alone() -> None:
    rng = random.Random(0)
    assert replace_values("1 dog", "1 chien", rng) == ("1 dog", "1 chien")
    assert replace_values("5 pm", "17 h", rng) is None
    assert replace_values("a dog", "un chien", rng) is None


def test_addresses_names_and_code_are_the_same_in_both_languages() -> None:
    rng = random.Random(0)
    for _ in range(300):
        source, target = made_pair(TRAINING, rng)
        assert "{" not in source + target
        copied = re.findall(r"\S+@\S+\w|(?:https?://|www\.)\S+\w|\w+_\w+", source)
        assert all(each in target for each in copied), (source, target)


def test_names_of_both_sides_become_others_that_are_new_each_time() -> None:
    made: set[str] = set()
    for seed in range(50):
        actual = rename(
            "Tom and Anna saw Tom, Lord.", "Tom et Anna ont vu Tom, Seigneur.", random.Random(seed)
        )
        assert actual is not None
        source, target = actual
        names = re.fullmatch(r"(.+) and (.+) saw \1, Lord\.", source)
        assert names and target == f"{names[1]} et {names[2]} ont vu {names[1]}, Seigneur."
        assert all(NAME.fullmatch(word) for name in names.groups() for word in name.split())
        assert names[1][0] not in "AEIOU" and names[2][0] in "AEIOU"
        made.update(names.groups())
    assert len(made) > 90


def test_nothing_is_renamed_where_no_name_or_many_are_shared() -> None:
    rng = random.Random(0)
    assert rename("Lord of all", "Seigneur de tous", rng) is None
    four = "Ann, Bob, Cid, Dan"
    assert rename(four, four, rng) is None


@pytest.mark.parametrize("kind", NOISES, ids=lambda kind: kind.__name__)
def test_noise_changes_a_little(kind) -> None:
    text = "Déjà vu, they said, wasn't everywhere."
    changed = {kind(text, random.Random(seed)) for seed in range(20)}
    assert changed - {text}
    assert all(abs(len(each) - len(text)) <= 2 for each in changed)
    assert kind("", random.Random(0)) == ""


def test_apostrophes_within_words_are_forgotten_and_quotes_are_not() -> None:
    text = without_apostrophes("I don't know, it\u2019s 'odd'.", random.Random(0))
    assert text == "I dont know, its 'odd'."


def test_typos_are_those_that_people_make() -> None:
    typos = {mistype("what", random.Random(seed)) for seed in range(100)}
    assert {"waht", "whatt", "whhat", "wat", "wht"} <= typos
    words = ["some", "other", "flowers", "grow", "there"]
    many = {mistype(" ".join(words), random.Random(seed)) for seed in range(100)}
    actual = {sum(a != b for a, b in zip(words, text.split(), strict=True)) for text in many}
    assert {1, 2} <= actual <= {0, 1, 2}


def test_capitals_and_titles() -> None:
    (pair,) = augment_pairs(PAIRS[2:3], {"capitals": 1}, seed=0)
    assert (pair.source, pair.target) == ("I AM HERE.", "JE SUIS LÀ.")
    assert title_case("it is late.") == "It Is Late."
