"""Stop strings: found wherever the pieces are cut, and never a character too many."""

from hypothesis import given
from hypothesis import strategies as st

from serving.text.stop_strings import StopStrings


def stream(pieces: list[str], stops: list[str]) -> tuple[str, bool]:
    stop_strings = StopStrings(stops)
    text = ""
    for piece in pieces:
        text += stop_strings.push(piece)
        if stop_strings.has_stopped:
            return text, True
    return text + stop_strings.finish(), False


def test_a_stop_string_across_pieces_ends_the_text() -> None:
    assert stream(["one t", "w", "o three"], ["two"]) == ("one ", True)


def test_what_only_looked_like_a_stop_string_is_given_back() -> None:
    assert stream(["one t", "wenty"], ["two"]) == ("one twenty", False)


def test_text_is_not_held_back_longer_than_needed() -> None:
    stops = StopStrings(["\n\n"])

    assert [stops.push(piece) for piece in ("a", "b\n", "c")] == ["a", "b", "\nc"]


@given(pieces=st.lists(st.text("ab", max_size=4)), stops=st.lists(st.text("ab", min_size=1)))
def test_pieces_make_no_difference(pieces: list[str], stops: list[str]) -> None:
    whole = "".join(pieces)
    ends = (end for end in range(len(whole) + 1) if whole[:end].endswith(tuple(stops)))
    end = next(ends, None)

    text, has_stopped = stream(pieces, stops)

    assert has_stopped == (end is not None)
    if end is None:
        assert text == whole
    else:
        longest = max(len(stop) for stop in stops if whole[:end].endswith(stop))
        assert text == whole[: end - longest]


@given(pieces=st.lists(st.text("ab", max_size=4)), stops=st.lists(st.text("ab", min_size=1)))
def test_nothing_is_told_that_may_begin_a_stop_string(pieces: list[str], stops: list[str]) -> None:
    stop_strings, whole, written = StopStrings(stops), "", ""
    for piece in pieces:
        whole += piece
        written += stop_strings.push(piece)
        if stop_strings.has_stopped:
            return
        pending = whole[len(written) :]
        assert whole.startswith(written)
        assert not pending or any(stop.startswith(pending) for stop in stops)
        begun = [n for stop in stops for n in range(len(stop)) if whole.endswith(stop[:n])]
        assert len(pending) == max(begun, default=0)
