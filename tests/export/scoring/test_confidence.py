"""Features of translations, by a plain loop too; calibration, and `attendant lab calibrate`."""

from math import exp, log
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from export.scoring.commands import calibrate
from export.scoring.confidence import (
    SERVED,
    Example,
    boosted_probability,
    features,
    fit_calibration,
    ranks,
)
from serving.bundle.opening import open_bundle
from serving.pipelines.translation.quality import Calibration
from serving.requests.request import FinishReason, Hypothesis, OutputTokens, TokenLogprob
from tests.served import int8_bundle


@given(st.lists(st.floats(0.001, 10), min_size=2, max_size=20), st.integers(0, 25))
def test_boosted_probabilities_are_those_of_a_plain_loop(weights: list[float], token: int) -> None:
    likeliest = sorted((weight / sum(weights) for weight in weights), reverse=True)
    top = [TokenLogprob(number, log(each)) for number, each in enumerate(likeliest)]
    own = log(likeliest[token]) if token < len(likeliest) else -12.0
    cut = 0
    for place in range(len(likeliest) - 1):
        jump = likeliest[place] - likeliest[place + 1] - 1e-9
        if jump > 0.3 * likeliest[place] and jump > 0.005:
            cut = place + 1

    expected = sum(likeliest[:cut]) if token < cut else exp(own)
    assert boosted_probability(token, own, top) == pytest.approx(expected)


def test_features_of_two_sentences() -> None:
    top = (TokenLogprob(5, log(0.5)), TokenLogprob(6, log(0.25)))
    tokens = OutputTokens([5, 6], [log(0.5), log(0.25)], [top, top], [np.array([1.0, 0.0])] * 2)
    best = Hypothesis(tokens, 0.0, FinishReason.STOP)

    actual = features([2, 2], [best, best])

    assert actual[SERVED] == pytest.approx(0.375)
    assert actual["least log-probability"] == pytest.approx(log(0.25))
    assert actual["negative entropy"] == pytest.approx(log(0.5) * 1.5)
    assert actual["coverage"] == pytest.approx(log(0.05) / 2)
    assert actual["like length"] == pytest.approx(0)


def test_a_line_is_found_again_and_equal_values_share_a_rank() -> None:
    examples = [Example({SERVED: each}, 0.1 + 0.7 * each) for each in (0.2, 0.5, 0.9)]

    assert fit_calibration(examples) == Calibration(0.1, 0.7)
    assert fit_calibration([Example(each.features, -each.chrf) for each in examples]) is None
    assert ranks(np.array([1.0, 9.0, 1.0])).tolist() == [1.5, 3.0, 1.5]


def test_the_command(tmp_path: Path) -> None:
    """With the shipped model, whose export takes seconds: a random one cannot be calibrated."""
    bundle = int8_bundle("transformer-en-fr", "transformer", tmp_path)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text(
        "web\tTwo dogs run in the snow.\tDeux chiens courent dans la neige.\n"
        "web\tIts abashed grandiloquence is vexing.\tSa grandiloquence confuse agace.\n"
        "web\t12\t12\n"
    )

    result = CliRunner().invoke(calibrate, [str(bundle), "--dev", str(pairs), "--test", str(pairs)])

    assert "| mean probability | 1.000 | 1.000 |" in result.stdout
    assert "on 2 texts: error 0.000" in result.stdout  # in the third there is nothing to translate
    assert Calibration.from_quality(open_bundle(bundle).manifest.quality) != Calibration()
