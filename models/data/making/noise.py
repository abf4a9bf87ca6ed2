"""Writes sources as people type them: other capitals, typos, missing marks. Meanings stay."""

import random
import re
import unicodedata

WORD = re.compile(r"[^\W\d_]{4,}")
APOSTROPHE = re.compile(r"(?<=[^\W\d_])['\u2019](?=[^\W\d_])")


def mistype(text: str, rng: random.Random) -> str:
    """Let two letters of one word or two change places, or double or lose one."""
    words = list(WORD.finditer(text))
    count = min(len(words), rng.randint(1, 2 if len(words) > 3 else 1))
    for word in sorted(rng.sample(words, count), key=re.Match.start, reverse=True):
        place = rng.randrange(word.start() + 1, word.end() - 1)
        a, b = text[place], text[place + 1]
        text = text[:place] + rng.choice((b + a, a + a + b, a + b + b, b)) + text[place + 2 :]
    return text


def without_apostrophes(text: str, rng: random.Random) -> str:
    """Write dont and Im."""
    return APOSTROPHE.sub("", text)


def without_accents(text: str, rng: random.Random) -> str:
    """Write as on a keyboard that has none, and with straight quotes."""
    letters = unicodedata.normalize("NFD", text)
    return "".join(x for x in letters if not unicodedata.combining(x)).replace("\u2019", "'")


def careless_spaces(text: str, rng: random.Random) -> str:
    """Put one space too many, or none after commas."""
    spaces = [i for i, x in enumerate(text) if x == " "]
    if not spaces or rng.random() < 0.5:
        return text.replace(", ", ",")
    place = rng.choice(spaces)
    return text[:place] + " " + text[place:]


def without_end(text: str, rng: random.Random) -> str:
    """Write in small letters, without the last mark."""
    return text.lower().rstrip(".!?")


KINDS = (mistype, without_apostrophes, without_accents, careless_spaces, without_end)


def noisy(text: str, rng: random.Random) -> str:
    """Draw carelessness of one or two kinds, half of the time a typo."""
    for _ in range(rng.randint(1, 2)):
        text = (mistype if rng.random() < 0.5 else rng.choice(KINDS))(text, rng)
    return text


def titled(text: str) -> str:
    """Write Every Word With a Capital."""
    return " ".join(word[:1].upper() + word[1:] for word in text.split(" "))
