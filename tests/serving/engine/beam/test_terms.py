"""How far terms have come, held against a look at the whole text."""

from hypothesis import given
from hypothesis import strategies as st

from serving.engine.beam.terms import Progress, Terms
from serving.parameters import Term, TokenIds

IDS = st.integers(0, 4)
TEXTS = st.lists(IDS, max_size=12).map(tuple)
WAYS = st.lists(st.lists(IDS, min_size=1, max_size=4).map(tuple), max_size=3).map(tuple)
SETS = st.frozensets(IDS, max_size=2)
TERMS = st.builds(Term, WAYS.filter(bool), WAYS, SETS, SETS)


def starts_of(term: Term, text: TokenIds, ids: TokenIds, is_bare: bool) -> list[int]:
    """Where a spelling is, or may begin at the end of the text and is there as far as that goes."""
    return [
        start
        for start in range(len(text) + 1)
        if text[start : start + len(ids)] == ids[: len(text) - start]
        and (not is_bare or start == 0 or text[start - 1] in term.opening_ids)
    ]


def looked_up(terms: list[Term], text: TokenIds) -> tuple[bool, int, list[int]]:
    is_complete, num_met, next_ids = True, 0, []
    for term in terms:
        ways = [(ids, False) for ids in term.spellings] + [(ids, True) for ids in term.bare]
        found = [(ids, start) for ids, bare in ways for start in starts_of(term, text, ids, bare)]
        whole = [(ids, start + len(ids)) for ids, start in found if start + len(ids) <= len(text)]
        if any(end == len(text) or text[end] not in term.inner_ids for _, end in whole):
            num_met += max(len(ids) for ids, _ in ways)
            continue
        is_complete = False
        begun = [
            max(
                (len(text) - s for s in starts_of(term, text, *way) if len(text) - s < len(way[0])),
                default=None,
            )
            for way in ways
        ]
        num_met += max(num or 0 for num in begun)
        next_ids += [ids[num] for (ids, _), num in zip(ways, begun, strict=True) if num is not None]
    return is_complete, num_met, list(dict.fromkeys(next_ids))


@given(terms=st.lists(TERMS, min_size=1, max_size=3), text=TEXTS)
def test_token_by_token_is_as_at_once(terms: list[Term], text: TokenIds) -> None:
    progress = Progress(Terms(terms)).after_all(text)

    told = progress.is_complete, progress.num_met, progress.next_ids()
    assert told == looked_up(terms, text)


def test_a_term_is_met_as_a_word_of_its_own() -> None:
    term = Term(((4, 5),), bare=((6, 7),), opening_ids=frozenset({8}), inner_ids=frozenset({9}))
    for ids, is_complete, num_met, next_ids in (
        ((), False, 0, (4, 6)),
        ((4,), False, 1, (5,)),
        ((3, 4, 5), True, 2, ()),
        ((3, 4, 5, 9), False, 0, (4,)),
        ((3, 4, 5, 9, 4, 5, 8), True, 2, ()),
        ((6,), False, 1, (4, 7)),
        ((6, 7), True, 2, ()),
        ((6, 7, 9), False, 0, (4,)),
        ((3, 6, 7), False, 0, (4,)),
        ((3, 8), False, 0, (4, 6)),
        ((3, 8, 6, 7, 3), True, 2, ()),
    ):
        progress = Progress(Terms([term])).after_all(ids)
        told = progress.is_complete, progress.num_met, tuple(progress.next_ids())
        assert told == (is_complete, num_met, next_ids), ids
