"""Puts invented names where both languages have the same one: a model that never sees a name twice
learns to copy it letter by letter, where a list of names would only be learnt by heart.
"""

import random
import re

from models.data.making.made import listed

NAME = re.compile(r"\b[A-Z][a-zà-ÿ]{2,}\b")
MOST_NAMES = 3  # in a text: more are a list of authors or companies
ONSETS = listed("b b d d f g h j k l l m m n n p r r s s t t v w y z br ch fr kh sh st th tr")
VOWELS = listed("a a a a e e e i i i o o o u u ai ei ia io ou")
CODAS = ("",) * 8 + listed("l n r s k m t ck ll nd nn rd rt st tz")
ENDINGS = listed("a a e i o an ek en er ez in is on ov son sky")


def invented_name(rng: random.Random, begins_with_vowel: bool) -> str:
    """Make a name of one or two syllables and an ending."""
    syllables = [
        rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS)
        for _ in range(rng.choice((1, 1, 2)))
    ]
    if begins_with_vowel:
        syllables.insert(0, rng.choice("AEIOU"))
    return "".join([*syllables, rng.choice(ONSETS), rng.choice(ENDINGS)]).capitalize()


def rename(source: str, target: str, rng: random.Random) -> tuple[str, str] | None:
    """Put other names for all that both sides have; None where they share none, or many.

    A name that begins with a vowel gets one that does, for French elides words before it.
    """
    shared = {*NAME.findall(source)} & {*NAME.findall(target)}
    if not 0 < len(shared) <= MOST_NAMES:
        return None
    names = {name: _instead_of(name, rng) for name in sorted(shared)}

    def other(match: re.Match[str]) -> str:
        return names.get(match.group(), match.group())

    return NAME.sub(other, source), NAME.sub(other, target)


def _instead_of(name: str, rng: random.Random) -> str:
    """Make one name, or now and then a first and a last one."""
    first = invented_name(rng, name[0] in "AEIOU")
    return f"{first} {invented_name(rng, rng.random() < 0.2)}" if rng.random() < 0.3 else first
