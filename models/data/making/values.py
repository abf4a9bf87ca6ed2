"""Replaces a pair's numbers by others, alike on both sides: dates, times and amounts."""

import random
import re

NUMBER = re.compile(r"\d+")
LIMITS = (12, 31, 59, 99)  # months and hours, days, minutes, and what has two digits
FEWEST = 2  # 0 and 1 decide whether a noun is plural


def replace_values(source: str, target: str, rng: random.Random) -> tuple[str, str] | None:
    """Give the pair other numbers; None if the two sides do not have the same."""
    numbers = NUMBER.findall(source)
    if not numbers or sorted(numbers) != sorted(NUMBER.findall(target)):
        return None
    others = {number: _another(number, rng) for number in sorted(set(numbers))}
    source, target = (NUMBER.sub(lambda m: others[m[0]], each) for each in (source, target))
    return source, target


def _another(number: str, rng: random.Random) -> str:
    """Draw as many digits, and of the same kind: no 13th month comes of a 5th."""
    value = int(number)
    if value < FEWEST:
        return number
    if len(number) > 2:
        first = rng.choice("123456789") if number[0] != "0" else "0"
        return first + "".join(rng.choices("0123456789", k=len(number) - 1))
    limit = next(limit for limit in LIMITS if value <= limit)
    fewest = 10 if len(number) == 2 and number[0] != "0" else FEWEST
    return str(rng.randint(min(fewest, limit), min(limit, 10 ** len(number) - 1))).zfill(
        len(number)
    )
