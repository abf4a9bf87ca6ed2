"""Lists the words that a model can know: other names are better copied."""

import re
from collections import Counter
from collections.abc import Iterable

from models.data.corpus import Pair

WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
FEWEST = 5  # times in any writing: of names that were seen less often most come out as others
FEWEST_SMALL = 2  # times in small letters: a word, if a rare one, is no name
MOST_COPIED = 1000  # times: a name that is seen more often comes out as it should
COPIED = 0.85  # of the times that a name is seen: it has no other form in the target
ENDS = ".!?…:"  # of sentences: the word after one has a capital in any case


def known_words(pairs: Iterable[Pair]) -> list[str]:
    """Return the words of sources that occur often enough, as they are mostly written, in order;
    of names those that targets write otherwise, or that are very frequent.

    What begins a sentence has a capital in any case, and says nothing of how a word is written.
    """
    written: Counter[str] = Counter()
    within: Counter[str] = Counter()
    copied: Counter[str] = Counter()
    for pair in pairs:
        targets = set(WORD.findall(pair.target))
        for match in WORD.finditer(pair.source):
            word, before = match.group(), pair.source[: match.start()].rstrip()
            written[word] += 1
            within[word] += bool(before) and before[-1] not in ENDS
            copied[word.lower()] += word in targets
    counts: Counter[str] = Counter()
    usual: dict[str, str] = {}
    for word, count in written.items():
        small = word.lower()
        counts[small] += count
        best = usual.setdefault(small, word)
        usual[small] = max(word, best, key=lambda each: (within[each], each == small))

    def is_known(small: str) -> bool:
        is_name = usual[small] != small and counts[small] < MOST_COPIED
        if is_name and copied[small] >= COPIED * counts[small]:
            return False
        return counts[small] >= FEWEST or written[small] >= FEWEST_SMALL

    return sorted(usual[small] for small in counts if is_known(small))
