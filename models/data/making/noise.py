"""Writes sources as people type them: other capitals, typos, missing marks. Meanings stay."""

import random
import re
import unicodedata

WORD = re.compile(r"[^\W\d_]{4,}")


def mistype(text: str, rng: random.Random) -> str:
    """Let two letters of one word change places, or double or lose one."""
    words = list(WORD.finditer(text))
    if not words:
        return text
    word = rng.choice(words)
    place = rng.randrange(word.start() + 1, word.end() - 1)
    a, b = text[place], text[place + 1]
    return text[:place] + rng.choice((b + a, a + a + b, b)) + text[place + 2 :]


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


KINDS = (mistype, without_accents, careless_spaces, without_end)


def noisy(text: str, rng: random.Random) -> str:
    """Draw one kind of carelessness."""
    return rng.choice(KINDS)(text, rng)


def titled(text: str) -> str:
    """Write Every Word With a Capital."""
    return " ".join(word[:1].upper() + word[1:] for word in text.split(" "))
