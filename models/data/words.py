"""Lists the words that a model can know: names that it met less often it had better copy."""

import re
from collections import Counter
from collections.abc import Iterable

WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
FEWEST = 5  # times in any writing: of names that were seen less often most come out as others
FEWEST_SMALL = 2  # times in small letters: a word, if a rare one, is no name


def known_words(texts: Iterable[str]) -> list[str]:
    """Return the words that occur often enough, in small letters and in order."""
    written = Counter(word for text in texts for word in WORD.findall(text))
    counts: Counter[str] = Counter()
    for word, count in written.items():
        counts[word.lower()] += count
    known = {word for word, count in counts.items() if count >= FEWEST}
    known |= {word for word, count in written.items() if word.islower() and count >= FEWEST_SMALL}
    return sorted(known)
