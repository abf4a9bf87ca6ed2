"""Additional training pairs made from the pairs of a corpus, so that a model copies names and
numbers and translates text in capitals, with typos, or of several sentences.

Everything follows from a seed. Each kind of pair has an origin of its own.
"""

import random
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from models.data.corpus import SentencePair
from models.data.synthetic import NAME, TRAINING, drawn_phrase, made_pair, rename, replace_values

WORD = re.compile(r"[^\W\d_]{4,}")
APOSTROPHE = re.compile(r"(?<=[^\W\d_])['\u2019](?=[^\W\d_])")


def mistype(text: str, rng: random.Random) -> str:
    """Swap, double or drop a letter in one word or two."""
    words = list(WORD.finditer(text))
    count = min(len(words), rng.randint(1, 2 if len(words) > 3 else 1))
    for word in sorted(rng.sample(words, count), key=re.Match.start, reverse=True):
        place = rng.randrange(word.start() + 1, word.end() - 1)
        a, b = text[place], text[place + 1]
        text = text[:place] + rng.choice((b + a, a + a + b, a + b + b, b)) + text[place + 2 :]
    return text


def without_apostrophes(text: str, rng: random.Random) -> str:
    """Drop apostrophes: "dont", "Im"."""
    return APOSTROPHE.sub("", text)


def without_accents(text: str, rng: random.Random) -> str:
    """Drop accents and make quotation marks straight, as typed on an English keyboard."""
    letters = unicodedata.normalize("NFD", text)
    return "".join(x for x in letters if not unicodedata.combining(x)).replace("\u2019", "'")


def careless_spaces(text: str, rng: random.Random) -> str:
    """Insert one superfluous space, or drop the spaces after commas."""
    spaces = [i for i, x in enumerate(text) if x == " "]
    if not spaces or rng.random() < 0.5:
        return text.replace(", ", ",")
    place = rng.choice(spaces)
    return text[:place] + " " + text[place:]


def without_end(text: str, rng: random.Random) -> str:
    """Return the sentence in lower case and without its final punctuation mark."""
    return text.lower().rstrip(".!?")


MISTAKES = (mistype, without_apostrophes, without_accents, careless_spaces, without_end)


def noisy(text: str, rng: random.Random) -> str:
    """Apply one or two kinds of typing mistakes; half of the time one of them is a typo."""
    for _ in range(rng.randint(1, 2)):
        text = (mistype if rng.random() < 0.5 else rng.choice(MISTAKES))(text, rng)
    return text


def title_case(text: str) -> str:
    """Capitalise every word, as in a title."""
    return " ".join(word[:1].upper() + word[1:] for word in text.split(" "))


Kind = Literal["values", "made", "names", "capitals", "titles", "noise", "joined", "phrases"]
Make = Callable[[Sequence[SentencePair], random.Random], tuple[str, str] | None]
UNREAL: frozenset[Kind] = frozenset({"names", "noise"})  # have words that nobody writes
DIGIT = re.compile(r"\d")
MOST_JOINED = 4
LONGEST_JOINED = 600  # characters: what is longer is left out by a model's limits


def augment_pairs(
    pairs: Sequence[SentencePair], counts: dict[Kind, int], seed: int
) -> list[SentencePair]:
    """Make the new pairs of every kind, as many as `counts` says."""
    if not pairs:
        return []
    return [
        pair for kind in sorted(counts) for pair in _make_pairs(pairs, kind, counts[kind], seed)
    ]


def _make_pairs(
    pairs: Sequence[SentencePair], kind: Kind, count: int, seed: int
) -> Iterator[SentencePair]:
    """Make `count` pairs; drawn pairs of which nothing can be made are skipped."""
    rng = random.Random(f"{kind} {seed}")
    for _ in range(count):
        pair = KINDS[kind](pairs, rng)
        if pair:
            yield SentencePair(kind, *pair)


def _values(pairs: Sequence[SentencePair], rng: random.Random) -> tuple[str, str] | None:
    pair = _drawn_with(DIGIT, pairs, rng)
    return replace_values(pair.source, pair.target, rng)


def _names(pairs: Sequence[SentencePair], rng: random.Random) -> tuple[str, str] | None:
    pair = _drawn_with(NAME, pairs, rng)
    return rename(pair.source, pair.target, rng)


def _drawn_with(
    pattern: re.Pattern[str], pairs: Sequence[SentencePair], rng: random.Random
) -> SentencePair:
    """Draw a pair whose target matches, or any pair if none of a few dozen draws matches."""
    drawn = (rng.choice(pairs) for _ in range(50))
    return next((p for p in drawn if pattern.search(p.target, 1)), pairs[0])


def _fill_slots(pairs: Sequence[SentencePair], rng: random.Random) -> tuple[str, str]:
    """Fill a sentence's slots; half of the time another sentence precedes it."""
    source, target = made_pair(TRAINING, rng)
    if rng.random() < 0.5:
        return source, target
    before = rng.choice(pairs)
    return f"{before.source} {source}", f"{before.target} {target}"


def _capitals(pairs: Sequence[SentencePair], rng: random.Random) -> tuple[str, str]:
    pair = rng.choice(pairs)
    return pair.source.upper(), pair.target.upper()


def _titles(pairs: Sequence[SentencePair], rng: random.Random) -> tuple[str, str]:
    pair = rng.choice(pairs)
    return title_case(pair.source), pair.target


def _noise(pairs: Sequence[SentencePair], rng: random.Random) -> tuple[str, str]:
    pair = rng.choice(pairs)
    return noisy(pair.source, rng), pair.target


def _join_neighbours(pairs: Sequence[SentencePair], rng: random.Random) -> tuple[str, str] | None:
    """Join neighbouring pairs of the corpus, which are often of one text."""
    count = rng.randint(2, MOST_JOINED)
    start = rng.randrange(max(1, len(pairs) - count))
    group = pairs[start : start + count]
    source, target = (" ".join(getattr(p, side) for p in group) for side in ("source", "target"))
    return (source, target) if len(source) <= LONGEST_JOINED else None


def _phrases(pairs: Sequence[SentencePair], rng: random.Random) -> tuple[str, str]:
    return drawn_phrase(rng)


KINDS: dict[Kind, Make] = {
    "values": _values,
    "made": _fill_slots,
    "names": _names,
    "capitals": _capitals,
    "titles": _titles,
    "noise": _noise,
    "joined": _join_neighbours,
    "phrases": _phrases,
}
