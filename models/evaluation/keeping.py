"""Finds what a translation must carry over: numbers, addresses, code, names, the case of what is
shouted. Found by comparing source and reference, so that any test set can be scored.
"""

import re
from collections.abc import Sequence

from sacrebleu.metrics import CHRF

from models.data.corpus import Pair

THOUSANDS = re.compile(r"(?<=\d)[\s.,](?=\d{3}(?!\d))")
NUMBER = re.compile(r"\d+")
CODE = re.compile(r"(?:https?://|www\.)[^\s,]*\w|\S+@\S+\w|\w*[a-z]+_\w+(?:\(\))?")
EMOJI = re.compile(r"[\U0001f300-\U0001faff\u2600-\u27bf]")
NAME = re.compile(r"[A-Z][a-z]+")
UNDERSTOOD = 50.0  # chrF of a shouted sentence from which it counts as translated


def share_kept(pairs: Sequence[Pair], hypotheses: Sequence[str]) -> float | None:
    """Compute how many percent of the sentences with something to keep, keep all of it."""
    found = [keeps(pair, text) for pair, text in zip(pairs, hypotheses, strict=True)]
    judged = [each for each in found if each is not None]
    return 100 * sum(judged) / len(judged) if judged else None


def keeps(pair: Pair, hypothesis: str) -> bool | None:
    """Tell whether a translation carries over what it must; None where there is nothing."""
    if is_shouted(pair.source):
        score = CHRF().sentence_score(hypothesis.lower(), [pair.target.lower()]).score
        return is_shouted(hypothesis) and score >= UNDERSTOOD
    copied = copied_strings(pair)
    numbers = numbers_of(pair.target) if NUMBER.search(pair.source) else []
    if not copied and not numbers:
        return None
    return all(each in hypothesis for each in copied) and numbers_of(hypothesis) == numbers


def copied_strings(pair: Pair) -> set[str]:
    """Find addresses, code, emoji and names that both sides have."""
    names = NAME.findall(pair.source[1:])  # the first letter is large in any case
    candidates = [*CODE.findall(pair.source), *EMOJI.findall(pair.source), *names]
    return {each for each in candidates if each in pair.target}


def numbers_of(text: str) -> list[str]:
    """Find all numbers in order of size, however their thousands are marked."""
    return sorted(NUMBER.findall(THOUSANDS.sub("", text)))


def is_shouted(text: str) -> bool:
    return text.isupper() and sum(map(str.isalpha, text)) > 2
