"""Draws what people say and write to each other every day, and corpora seldom have: greetings,
signs, names of things. The phrases were written for this project.
"""

import random
from functools import cache
from pathlib import Path

PHRASES = Path(__file__).with_name("phrases-en-fr.tsv")
MARKS = " .!?"


@cache
def phrases() -> list[tuple[str, str]]:
    """Read all phrases, in English and in French."""
    lines = PHRASES.read_text(encoding="utf-8").splitlines()
    return [(source, target) for source, target in (line.split("\t") for line in lines)]


def drawn_phrase(rng: random.Random) -> tuple[str, str]:
    """Draw a phrase as it is written, without capitals and marks, or before another one."""
    source, target = rng.choice(phrases())
    manner = rng.random()
    if manner < 0.2:
        return source.lower().rstrip(MARKS), target
    if manner < 0.4 and source[-1] in MARKS:
        after = rng.choice([each for each in phrases() if each[0][-1] in MARKS])
        return f"{source} {after[0]}", f"{target} {after[1]}"
    return source, target
