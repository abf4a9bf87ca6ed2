"""Stop strings: found wherever the pieces are cut, and never a character too many."""

from hypothesis import given
from hypothesis import strategies as st

from serving.text.stops import StopStrings


def stream(pieces: list[str], stops: list[str]) -> tuple[str, bool]:
    stop_strings = StopStrings(stops)
    text = ""
    for piece in pieces:
        text += stop_strings.push(piece)
        if stop_strings.found:
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
    ends = [whole.find(stop) for stop in stops if stop in whole]

    text, found = stream(pieces, stops)

    assert found == bool(ends)
    if not found:
        assert text == whole
    else:
        assert whole.startswith(text)
        assert not any(stop in text for stop in stops)
