"""Lists the words that a model can know: names that it met less often it had better copy."""

import re
from collections import Counter
from collections.abc import Iterable

WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
FEWEST = 5  # times in any writing: of names that were seen less often most come out as others
FEWEST_SMALL = 2  # times in small letters: a word, if a rare one, is no name


def known_words(texts: Iterable[str]) -> list[str]:
    """Return the words that occur often enough, as they are mostly written, in order.

    What begins a text has a capital in any case, and says nothing of how a word is written.
    """
    written: Counter[str] = Counter()
    within: Counter[str] = Counter()
    for text in texts:
        for match in WORD.finditer(text):
            written[match.group()] += 1
            within[match.group()] += match.start() > 0
    counts: Counter[str] = Counter()
    usual: dict[str, str] = {}
    for word, count in written.items():
        small = word.lower()
        counts[small] += count
        best = usual.setdefault(small, small)
        usual[small] = max(word, best, key=lambda each: (within[each], each == small))
    return sorted(
        usual[small]
        for small, count in counts.items()
        if count >= FEWEST or written[small] >= FEWEST_SMALL
    )
