"""The run for GPU hosts, tried on a CPU: its own logic, each part at tiny sizes, and its report."""

import importlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from serving.bundle.manifest import Precision
from serving.requests.request import (
    FinishedEvent,
    FinishReason,
    GenerationRequest,
    Hypothesis,
    OutputTokens,
    TokenLogprob,
)
from tests.gpu import __main__ as command
from tests.gpu import running
from tests.gpu.bundles import tiny
from tests.gpu.findings import Aim, Finding, Notebook, PartResult
from tests.gpu.host import describe, missing_gpu
from tests.gpu.page import write_report
from tests.gpu.parity import compare, parting
from tests.gpu.parts import PARTS, Place
from tests.serving.engine.devices import NEAR, assert_near
from tests.serving.engine.driving import Story
from tests.tiny import tiny_bundle

SLOW = ["http", "engine", "placement", "bart", "luong"]  # as others, or more than seconds
QUICK = [name for name in PARTS if name not in SLOW]


def found_by(name: str, folder: Path) -> list[Finding]:
    part = PARTS[name]
    find = importlib.import_module(f"tests.gpu.{part.module}").find
    return list(find(Place("cpu", folder, part.shape)))


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_every_part_finds_something_at_tiny_sizes(name: str, tmp_path: Path) -> None:
    found = found_by(name, tmp_path)
    assert found
    if not PARTS[name].shape:
        assert {each.outcome for each in found} <= {"reached", ""}


@pytest.mark.parametrize("architecture", ["transformer", "llama"])
def test_its_bundles_hold_what_exported_ones_hold(architecture: str, tmp_path: Path) -> None:
    made = tiny(architecture, {}, Precision.FP16, tmp_path / "made")
    exported = tiny_bundle(architecture, tmp_path / "exported", Precision.FP16)
    cards = {"README.md"}
    assert {each.name for each in made.folder.iterdir()} == {
        each.name for each in exported.iterdir() if each.name not in cards
    }


@pytest.mark.skipif(missing_gpu() is None, reason="there is a GPU")
def test_without_a_gpu_it_says_so_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 3
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert "gpu" in output.err.lower()


def test_a_run_leaves_a_page_and_figures_and_parts_run_before_stay(tmp_path: Path) -> None:
    earlier = Notebook(tmp_path, "parity")
    earlier.begin()
    earlier.add(Finding("llama fp16: error", 0.5, "nats", Aim("at most", 0.02)))
    earlier.end("whole", 3)
    status = command.main(["--device", "cpu", "--only", "135m", "--out", str(tmp_path)])
    assert status == 0, (tmp_path / "parts/135m.log").read_text()
    document = json.loads((tmp_path / "report.json").read_text())
    assert set(document["parts"]) == {"parity", "135m"}
    assert document["parts"]["135m"]["ended"] == "whole"
    assert document["parts"]["parity"]["findings"][0]["outcome"] == "missed"
    page = (tmp_path / "report.md").read_text()
    assert "| **0.5 nats** | at most 0.02 |" in page
    assert "Never run: `python -m tests.gpu --only bart`." in page


def test_what_time_cuts_off_is_said_and_what_was_found_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "SHORTEST_SECONDS", 0.1)
    results: list[PartResult] = []
    running.run_parts(["placement", "company"], "cpu", tmp_path, 0.2, results.append)
    write_report(tmp_path, describe("cpu"))
    assert [each.name for each in results] == ["placement", "company"]
    assert str(results[0].ended).startswith("cut off after")
    assert str(results[1].ended).startswith("not run: no time was left")
    assert not any(each.is_good for each in results)
    assert "Cut off after" in (tmp_path / "report.md").read_text()


def test_a_part_that_fails_says_why(tmp_path: Path) -> None:
    results: list[PartResult] = []
    notebook = Notebook(tmp_path, "broken")
    notebook.begin()
    part = replace(PARTS["parity"], name="broken")
    running._run_alone(part, "cpu", tmp_path, 60, notebook)
    results.append(notebook.read())
    assert results[0].ended == "failed: KeyError: 'broken'"


def test_half_a_line_of_a_killed_part_is_left_out(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path, "parity")
    notebook.begin()
    notebook.add(Finding("first", 1.0, "x", Aim("at least", 2.0), "a note"))
    with (tmp_path / "parts/parity.jsonl").open("a") as file:
        file.write('{"finding": {"what": "sec')
    result = notebook.read()
    assert result.findings == [Finding("first", 1.0, "x", Aim("at least", 2.0), "a note")]
    assert result.ended is None
    assert not result.is_good


def story(*tokens: tuple[int, float, dict[int, float]]) -> Story:
    ids, logprobs, top = zip(*tokens, strict=True)
    likeliest = [tuple(TokenLogprob(*each) for each in of_token.items()) for of_token in top]
    only = Hypothesis(OutputTokens([*ids], [*logprobs], likeliest), 0.0, FinishReason.LENGTH)
    return Story([], FinishedEvent("r", (only,), 0, 0, len(ids)))


def test_outputs_may_part_at_near_ties_alone() -> None:
    theirs = story((5, -1.0, {}), (6, -0.7, {6: -0.7, 7: -0.71, 8: -2.0}))
    near, far = story((5, -1.0, {}), (7, -0.7, {})), story((5, -1.0, {}), (8, -0.7, {}))
    assert parting(theirs, theirs) is None
    for ours, margin in ((near, 0.01), (far, 1.3)):
        found = parting(ours, theirs)
        assert found is not None
        assert (found.position, round(found.margin, 6)) == (1, margin)
    scored, asked = GenerationRequest("s", None, (1,)), GenerationRequest("r", None, (1,))
    for ours, outcome in ((near, "reached"), (far, "missed")):
        given = {"s": theirs}
        both = compare("x", [scored], [asked], given | {"r": ours}, given | {"r": theirs}, 0.02)
        assert [each.outcome for each in both] == ["reached", outcome]


def test_on_a_device_the_engine_s_tests_tell_rounding_from_errors() -> None:
    request = GenerationRequest("r", None, (1,))
    expected = story((5, -1.0, {}), (6, -0.7, {}))
    assert_near([(request, story((5, -1.0 + NEAR / 2, {}), (7, -0.7, {})), expected)])
    with pytest.raises(AssertionError):
        assert_near([(request, story((5, -1.0 + 2 * NEAR, {}), (6, -0.7, {})), expected)])
    with pytest.raises(AssertionError):
        assert_near([(request, story((5, -1.0, {}), (7, -2.0, {})), expected)])
