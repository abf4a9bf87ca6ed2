"""Tests that what the papers report is said to show where the figures say so, and not where they do
not.
"""

import pytest

from export.zoo.effects import effects, peers, points_lost
from tests.export.zoo.figures import prose_results, results

STEEP, FLAT = (60.0, 50.0, 40.0), (60.0, 59.0, 58.0)


def test_points_lost_are_the_slope_of_a_line() -> None:
    assert points_lost(results("x", by_length=STEEP)) == pytest.approx(20.0)
    assert points_lost(results("x", by_length=(50.0, 51.0))) == pytest.approx(-2.0)


@pytest.mark.parametrize(
    ("fixed", "attention", "verdict"),
    [
        ([STEEP, STEEP], [FLAT, FLAT], "shows:"),
        ([STEEP, FLAT], [FLAT, FLAT], "shows on average:"),
        ([FLAT], [STEEP], "does not show:"),
    ],
)
def test_the_effect_of_length(fixed: list, attention: list, verdict: str) -> None:
    actual = [results(f"fixed-{i}", by_length=b, has_attention=False) for i, b in enumerate(fixed)]
    actual += [results(f"attention-{i}", by_length=b) for i, b in enumerate(attention)]
    [line] = effects(actual)
    assert f"figure 2) {verdict}" in line


def test_the_effect_of_length_in_figures() -> None:
    actual = [
        results("cho", by_length=STEEP, has_attention=False),
        results("luong", by_length=FLAT),
        results("bahdanau", by_length=(60.0, 58.0, 56.0)),
    ]
    [line] = effects(actual)
    assert "fixed context lose 20.0 BLEU, models with attention 3.0 (2.0 to 4.0)." in line


@pytest.mark.parametrize(
    ("changed", "plain", "said"),
    [
        (52.0, 50.5, "helps by 1.5 BLEU (52.0 with, 50.5 without)."),
        (50.9, 50.0, "does not show: +0.9 BLEU (50.9 with, 50.0 without) are no more than chance"),
        (48.0, 50.0, "costs 2.0 BLEU (48.0 with, 50.0 without): "),
    ],
)
def test_the_effect_of_an_option(changed: float, plain: float, said: str) -> None:
    actual = [results("luong", changed), results("luong-no-feeding", plain)]
    [line] = effects(actual)
    assert line.startswith("**Input feeding") and said in line


@pytest.mark.parametrize(
    ("bits", "said"),
    [
        ((1400, 1500, 1600), "helps by 0.100 bits per byte (1.500 with, 1.600 without)."),
        ((1601, 1598, 1604), "does not show: -0.001 bits per byte (1.601 with, 1.600 without)"),
        ((1600, 1700, 1800), "costs 0.100 bits per byte (1.700 with, 1.600 without): the budget"),
    ],
)
def test_the_effect_of_an_option_on_language_models(bits: tuple, said: str) -> None:
    """By document: differences that go either way may be chance, however long the text."""
    changed = prose_results("mut1-lm", sum(bits) / 3000, bits, epochs=7.0)
    [line] = effects([changed, prose_results("gru-lm", 1.6, (1500, 1600, 1700))])
    assert line.startswith("**MUT1 instead of GRU")
    assert said in line
    assert ("7.0 epochs with, 9.0 without" in line) != ("helps" in line)


def test_what_does_not_help_may_have_been_trained_for_less() -> None:
    actual = [results("luong", 48.0), results("luong-no-feeding", 50.0, epochs=12.0)]
    [line] = effects(actual)
    assert line.endswith("; the budget was enough for 9.0 epochs with, 12.0 without.")


def test_other_budgets_tell_nothing_of_an_option() -> None:
    assert effects([results("luong", 48.0), results("luong-no-feeding", 50.0, minutes=8)]) == []


def test_a_published_figure_is_said_to_be_another_measure() -> None:
    [line] = effects([results("transformer-tiny-long", 60.0)])
    assert ": 62 BLEU" in line and "61.0" in line and "not the same measure" in line


def test_nothing_is_said_of_what_is_not_there() -> None:
    assert effects([]) == []
    assert effects([results("luong"), results("cho")]) == []
    untrained = results("luong").model_copy(update={"translation": None, "training": None})
    assert effects([untrained, results("luong-no-feeding")]) == []


def test_only_what_had_the_same_budget_and_languages_is_compared_by_length() -> None:
    actual = [results("a"), results("b"), results("c", minutes=38), results("d", languages="en-de")]
    assert [each.name for each in peers(actual)] == ["a", "b"]
