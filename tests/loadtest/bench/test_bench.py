"""`attendant bench` on tiny bundles."""

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from loadtest.bench.command import COMPARED, OF_ONE_SIZE, bench
from loadtest.bench.comparisons import COMPARISONS
from loadtest.bench.workload import build_workload
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle, write_manifest
from serving.errors import EngineError, Overloaded, RequestError
from serving.pipelines.cards import ModelCard
from serving.pipelines.completion.pipeline import CompletionPipeline
from serving.pipelines.decoding import Decoding
from serving.pipelines.jobs import CompletionJob
from serving.pipelines.loading import ModelParts
from serving.pipelines.translation.job import TranslationJob
from serving.pipelines.translation.pipeline import TranslationPipeline
from serving.requests.parameters import BeamParams, SamplingParams
from serving.requests.request import Event, FailedEvent, FinalEvent, GenerationRequest
from tests.export.layers.test_shortlist import bundle_of as shortlisting_bundle
from tests.serving.engine.driving import run_all
from tests.serving.imported import many_languages_bundle
from tests.tiny import tiny_bundle

SAMPLED = ["--temperature", "1", "--top-k", "50", "--top-p", "0.9", "--min-p", "0.01"]
SAMPLED += ["--typical-p", "0.95"]
PENALISED = ["--repetition-penalty", "1.2", "--no-repeat-ngram-size", "2", "--min-tokens", "3"]


@pytest.mark.parametrize("family", ["transformer", "bahdanau", "llama"])
def test_measures_a_bundle_of_any_family(family: str, tmp_path: Path) -> None:
    bundle = tiny_bundle(family, tmp_path, Precision.INT8)
    options = ["--batch", "1,3", "--threads", "1", "--max-new-tokens", "5", "--json"]
    result = CliRunner().invoke(bench, [str(bundle), *options])
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert (report["precision"], report["threads"], report["device"]) == ("int8", 1, "cpu")
    assert [each["batch"] for each in report["results"]] == [1, 3]
    for each in report["results"]:
        assert each["requests"] == 32
        assert 0 < each["generated_tokens"] <= 5 * each["requests"]
        assert 0 < each["mean_rows"] <= each["batch"]
        assert 0 < each["host_ms"]["p50"] <= each["step_ms"]["p50"] <= each["step_ms"]["p99"]
        assert set(each["phase_seconds"]) >= {"decode"}


def test_engines_side_by_side_share_the_requests(tmp_path: Path) -> None:
    bundle = tiny_bundle("transformer", tmp_path, Precision.INT8)
    options = ["--batch", "1,3", "--engines", "2", "--threads", "1", "--json"]
    result = CliRunner().invoke(bench, [str(bundle), "--max-new-tokens", "5", *options])
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert (report["engines"], report["threads"]) == (2, 1)
    alone, together = report["results"]
    assert alone["requests"] == together["requests"] == 32
    assert alone["mean_rows"] == 1.0
    assert 1.0 < together["mean_rows"] <= 2.0  # of three requests one engine has two


def test_engines_side_by_side_are_not_compared(tmp_path: Path) -> None:
    bundle = tiny_bundle("transformer", tmp_path, Precision.FP32)
    result = CliRunner().invoke(bench, [str(bundle), "--compare", "beam", "--engines", "2"])
    assert result.exit_code == 2
    assert "--engines" in result.output


def test_reads_sentences_from_a_file_and_prints_a_line_for_each_batch_size(tmp_path: Path) -> None:
    bundle = tiny_bundle("transformer", tmp_path, Precision.FP32)
    (tmp_path / "in.txt").write_text("Bonjour.\n\nÇa va ?\n" + "x" * 5000 + "\n", encoding="utf-8")
    options = ["--input", str(tmp_path / "in.txt"), "--batch", "2", "--requests", "3"]
    options += ["--threads", "1", "--temperature", "1", "--max-new-tokens", "3"]
    result = CliRunner().invoke(bench, [str(bundle), *options])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("batch   2:")
    assert result.output.rstrip().endswith("3 requests")


@pytest.mark.parametrize(
    "search",
    [["--beam", "3", "--length-penalty", "0.6", "--early-stopping", "true"], SAMPLED, PENALISED],
)
def test_measures_any_search(search: list[str], tmp_path: Path) -> None:
    bundle = tiny_bundle("transformer", tmp_path, Precision.FP32)
    options = ["--batch", "2", "--requests", "4", "--max-new-tokens", "5", "--threads", "1"]
    result = CliRunner().invoke(bench, [str(bundle), *options, *search, "--json"])
    assert result.exit_code == 0, result.output
    [measured] = json.loads(result.output)["results"]
    assert measured["requests"] == 4
    num_rows = 6 if "--beam" in search else 2
    assert num_rows / 2 < measured["mean_rows"] <= num_rows


class Recorder:
    """Keeps what the service asks of its engine, and refuses it."""

    def __init__(self) -> None:
        self.requests: list[GenerationRequest] = []
        self.max_rows = 64

    def check_room(self, work: int, share: str, priority: int) -> None: ...

    async def run(self, requests: Sequence[GenerationRequest]) -> list[FinalEvent]:
        self.requests += requests
        raise Overloaded(0)

    async def stream(
        self, requests: Sequence[GenerationRequest]
    ) -> AsyncGenerator[list[Event], None]:
        self.requests += requests
        yield [FailedEvent(request.request_id, Overloaded(0)) for request in requests]

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Event, None]:
        self.requests.append(request)
        yield FailedEvent(request.request_id, Overloaded(0))


TEXT = "A dog runs. A cat sleeps!\nDr. Smith " + "waits and " * 30 + "goes.\n"
LIMITS = {"max_length_factor": 2.0, "max_new_tokens": 40}


def language_tokens(folder: Path) -> ModelParts:
    """Make a model of many languages whose makers limit the length of a translation."""
    path = many_languages_bundle(folder)
    write_manifest(path, replace(open_bundle(path).manifest, generation=LIMITS))
    return ModelParts.open(path)


def shortlist(folder: Path) -> ModelParts:
    return ModelParts.open(shortlisting_bundle(folder, Precision.INT8).folder)


def assert_same(ours: GenerationRequest, served: GenerationRequest) -> None:
    np.testing.assert_array_equal(ours.shortlist, served.shortlist)
    assert replace(served, request_id=ours.request_id, shortlist=ours.shortlist) == ours


@pytest.mark.parametrize("kind", [language_tokens, shortlist])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"beam": BeamParams(3)},
        {"sampling": SamplingParams(0.8, top_k=50, seed=3)},
        {"max_new_tokens": 7, "ignore_eos": True},
    ],
    ids=lambda changes: "-".join(changes) or "plain",
)
async def test_measures_the_translations_that_are_served(
    kind: Callable[[Path], ModelParts], changes: dict[str, Any], tmp_path: Path
) -> None:
    parts, engine = kind(tmp_path), Recorder()
    card = ModelCard.from_manifest(parts.bundle.manifest)
    source = card.source_languages[0]
    target = card.targets_of(source)[0]
    pipeline = parts.pipeline(engine, max_segments=100)
    assert isinstance(pipeline, TranslationPipeline)
    job = TranslationJob("", tuple(TEXT.splitlines()), source, target, Decoding(**changes))
    with pytest.raises(Overloaded):
        await pipeline.run(job)

    workload = build_workload(parts, TEXT, None, "cpu", threads=1)
    measured = list(islice(workload.requests(**changes), 2 * len(engine.requests)))

    assert len(engine.requests) > 2
    for ours, served in zip(measured, 2 * engine.requests, strict=True):
        assert_same(ours, served)
        assert (ours.shortlist is not None) == (kind is shortlist)
        if kind is language_tokens:
            assert ours.prompt_ids and ours.max_new_tokens


@pytest.mark.parametrize("changes", [{}, {"beam": BeamParams(3)}])
async def test_measures_the_completions_that_are_served(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    parts, engine = ModelParts.open(tiny_bundle("llama", tmp_path, Precision.FP32)), Recorder()
    pipeline = parts.pipeline(engine)
    assert isinstance(pipeline, CompletionPipeline)
    job = CompletionJob("", ("Once", "upon a"), Decoding(max_new_tokens=5, **changes))
    with suppress(EngineError):
        async for _ in pipeline.stream(job):
            pass

    workload = build_workload(parts, "Once\nupon a", 5, "cpu", threads=1)
    measured = list(islice(workload.requests(**changes), len(engine.requests)))

    assert len(engine.requests) == 2
    for ours, served in zip(measured, engine.requests, strict=True):
        assert_same(ours, served)


def test_cuts_prompts_that_leave_no_room(tmp_path: Path) -> None:
    bundle = tiny_bundle("llama", tmp_path, Precision.FP32, context_length=32)
    workload = build_workload(ModelParts.open(bundle), "x" * 500, 4, "cpu", threads=1)
    assert 0 < len(next(workload.requests()).prompt_ids) <= 16


def test_measures_no_tokens_that_are_not_served(tmp_path: Path) -> None:
    parts = ModelParts.open(tiny_bundle("llama", tmp_path, Precision.INT8, vocab_size=300))
    workload = build_workload(parts, None, 9, "cpu", threads=1)
    requests = islice(workload.requests(sampling=SamplingParams(2.0, seed=0)), 40)
    stories = run_all(workload.engine(8), requests)
    assert all(i < 259 for story in stories.values() for i in story.token_ids)


COMPARED_NUMBERS = {
    "beam": ("beam_seconds", "greedy_seconds"),
    "sampling": ("greedy_seconds", "sampling_seconds"),
    "graph": ("graph_seconds", "decoding_seconds"),
    "prefix": ("hit_seconds", "miss_seconds"),
}


@pytest.mark.parametrize("what", COMPARED)
def test_compares_within_one_run(what: str, tmp_path: Path) -> None:
    bundle = tiny_bundle("llama", tmp_path, Precision.FP32)
    options = ["--compare", what, "--repetitions", "2", "--beam", "2", "--threads", "1", "--json"]
    options += [] if what in OF_ONE_SIZE else ["--batch", "6"]
    result = CliRunner().invoke(bench, [str(bundle), *options])
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert report["compare"] == what
    [found] = report["results"]
    repetitions = found["repetitions"]
    assert len(repetitions) == 2
    assert found["median"] == median(each["value"] for each in repetitions)
    for each in repetitions:
        assert min(each.values()) > 0
        if what in COMPARED_NUMBERS:
            over, under = COMPARED_NUMBERS[what]
            assert each["value"] == pytest.approx(each[over] / each[under])


def test_a_cancelled_request_leaves_its_rows_to_the_next_step(tmp_path: Path) -> None:
    bundle = tiny_bundle("transformer", tmp_path, Precision.FP32)
    options = ["--compare", "cancel", "--repetitions", "1", "--threads", "1"]
    result = CliRunner().invoke(bench, [str(bundle), *options])
    assert result.output.endswith(": 1.000 (1.000 to 1.000 in 1 repetitions)\n")


def test_says_what_it_compares_and_with_what(tmp_path: Path) -> None:
    bundle = tiny_bundle("bahdanau", tmp_path, Precision.FP32)
    options = ["--compare", "sampling", "--min-p", "0.1", "--batch", "2,3", "--repetitions", "1"]
    result = CliRunner().invoke(bench, [str(bundle), *options, "--threads", "1"])
    lines = result.output.splitlines()
    assert lines[0].startswith("tokens/s, sampling (min_p 0.1) over greedy, batch 2: ")
    assert lines[1].startswith("tokens/s, sampling (min_p 0.1) over greedy, batch 3: ")


def test_compares_what_can_be_asked_for() -> None:
    assert tuple(COMPARISONS) == COMPARED


@pytest.mark.parametrize(
    "wrong",
    [
        ["--engines", "2", "--device", "cuda"],
        ["--batch", "0"],
        ["--batch", "1,,2"],
        ["--input", "/dev/null"],
        ["--beam", "17"],
        ["--batch", "4", "--compare", "cancel"],
        ["--requests", "4", "--compare", "beam"],
        ["--length-penalty", "2"],
    ],
)
def test_refuses_what_makes_no_sense(wrong: list[str], tmp_path: Path) -> None:
    bundle = tiny_bundle("llama", tmp_path, Precision.FP32)
    result = CliRunner().invoke(bench, [str(bundle), *wrong])
    assert result.exit_code == 2
    assert wrong[0] in result.output


def test_values_out_of_range_are_refused_as_everywhere(tmp_path: Path) -> None:
    bundle = tiny_bundle("llama", tmp_path, Precision.FP32)
    with pytest.raises(RequestError, match=r"^top_k: must be at least 0"):
        bench.main([str(bundle), "--top-k", "-1"], standalone_mode=False)
