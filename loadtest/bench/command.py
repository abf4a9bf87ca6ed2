"""`attendant bench`: measure the engine without HTTP, Ray or event loops."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from serving.commands.options import decoding_options, given_options, refuse_idle
from serving.engine.runtime.machine import available_cpus
from serving.requests.parameters import (
    NUM_BEAMS,
    BeamParams,
    ProcessorParams,
    SamplingParams,
    select_options,
)

if TYPE_CHECKING:
    from loadtest.bench.workload import BenchWorkload

MIN_REQUESTS = 32
DEFAULT_BATCHES = (1, 8, 32)
COMPARED = ("beam", "sampling", "graph", "mix", "cancel", "prefix")
OF_ONE_SIZE = ("cancel", "prefix")
COMPARED_BEAMS = 4
COMPARED_TEMPERATURE = 0.8
COMPARED_FILTERS: dict[str, Any] = {"top_k": 50, "top_p": 0.95}


class BatchSizes(click.ParamType):
    name = "sizes"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        parts = value.split(",")
        if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
            self.fail(f"{value!r} is not a list of batch sizes such as 1,8,32", param, ctx)
        return tuple(map(int, parts))


@click.command(context_settings={"show_default": True})
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--batch", type=BatchSizes(), help="Requests in flight.  [default: 1,8,32]")
@click.option(
    "--input",
    "input_file",
    type=click.File(encoding="utf-8"),
    show_default="built-in sentences",
    help="Sentences or prompts, one a line.",
)
@click.option(
    "--requests", type=click.IntRange(1), help="Per batch size.  [default: 8 x batch, at least 32]"
)
@click.option("--max-new-tokens", type=click.IntRange(1), help="Longest output.")
@decoding_options(is_recommended=False, seed="0")
@click.option("--compare", type=click.Choice(COMPARED), help="See above.")
@click.option("--repetitions", type=click.IntRange(1), default=7, help="Of a comparison.")
@click.option("--engines", type=click.IntRange(1), help="Side by side.  [default: 1]")
@click.option("--threads", type=click.IntRange(1), show_default="all CPUs, shared by the engines")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu")
@click.option("--json", "wants_json", is_flag=True, help="Report as JSON, raw times included.")
def bench(
    bundle: Path,
    batch: tuple[int, ...] | None,
    input_file: Any,
    requests: int | None,
    max_new_tokens: int | None,
    compare: str | None,
    repetitions: int,
    engines: int | None,
    threads: int | None,
    device: Any,
    wants_json: bool,
    **options: Any,
) -> None:
    """Measure the bare engine on BUNDLE: tokens/s, sentences/s, step times, time to first token.

    \b
      attendant bench build/bundles/transformer-en-fr-int8 --batch 8 --beam 4
      attendant bench build/bundles/transformer-en-fr-int8 --temperature 0.8 --top-p 0.95
      attendant bench build/bundles/transformer-en-fr-int8 --batch 1,32 --engines 2 --threads 1

    --compare takes both sides of a comparison in turns, within one run, and reports the median
    of their ratio. --beam (4) and the options of sampling (temperature 0.8, top-k 50, top-p 0.95)
    say what to compare with:

    \b
      beam      cost of a sentence by beam search over greedy (batch 8)
      sampling  tokens/s of sampling over greedy (batch 32)
      graph     tokens/s of decoding, the engine over its step graph alone (batch 32)
      mix       speed of all three in one batch over each alone (24 rows)
      cancel    steps until the rows of a cancelled request serve another
      prefix    time to first token of a long prompt seen before over an unseen one
    """
    given = given_options(options)
    _check(compare, batch, requests, engines, device, given)
    sampling = SamplingParams(**{"seed": 0} | select_options(SamplingParams, given))
    processors = ProcessorParams(**select_options(ProcessorParams, given))
    search = select_options(BeamParams, given)
    engines = engines or 1
    threads = threads or max(1, available_cpus() // engines)
    workload = _workload(bundle, input_file, max_new_tokens, device, threads)
    decoding = replace(workload.decoding, processors=processors)
    workload = replace(workload, decoding=decoding)
    if compare is None:
        beam = BeamParams(**search) if search else None
        sizes = batch or DEFAULT_BATCHES
        measured = _measure(workload, engines, beam, sampling, sizes, requests)
    else:
        beam, sampling = BeamParams(**{NUM_BEAMS: COMPARED_BEAMS} | search), _drawing(sampling)
        measured = _compare(workload, compare, beam, sampling, batch or (None,), repetitions)
    about = {**_about(workload), "engines": engines, "compare": compare}
    _report(measured, about if wants_json else None)


def _report(
    measured: Iterable[tuple[str, dict[str, Any]]], about: Mapping[str, Any] | None
) -> None:
    """Print each line at once; with --json print all figures at the end."""
    results = []
    for line, result in measured:
        results.append(result)
        if about is None:
            click.echo(line)
    if about is not None:
        click.echo(json.dumps({**about, "results": results}))


def _check(
    compare: str | None,
    batch: Sequence[int] | None,
    requests: int | None,
    engines: int | None,
    device: str,
    decoding_options: Mapping[str, Any],
) -> None:
    if device == "cuda" and (engines or 1) > 1:
        raise click.BadParameter("a GPU runs one engine", param_hint="--engines")
    wrong = "--requests" if compare and requests else None
    wrong = "--engines" if compare and engines else wrong
    wrong = "--batch" if compare in OF_ONE_SIZE and batch else wrong
    if wrong:
        raise click.BadParameter(f"does not go with --compare {compare}", param_hint=wrong)
    if compare is None and NUM_BEAMS not in decoding_options:
        refuse_idle(decoding_options, NUM_BEAMS, "--beam")


def _workload(
    bundle: Path, input_file: Any, max_new_tokens: int | None, device: Any, threads: int
) -> "BenchWorkload":
    from loadtest.bench.workload import build_workload
    from serving.pipelines.loading import ModelParts

    parts = ModelParts.open(bundle)
    if parts.bundle.manifest.task.only_encodes:
        raise click.UsageError(
            "bench measures how models decode; `attendant bench-compare` measures encoders"
        )
    text = input_file.read() if input_file else None
    if text is not None and not text.strip():
        raise click.BadParameter("has no line with text in it", param_hint="--input")
    return build_workload(parts, text, max_new_tokens, device, threads)


def _measure(
    workload: "BenchWorkload",
    num_engines: int,
    beam: BeamParams | None,
    sampling: SamplingParams,
    batches: Sequence[int],
    num_requests: int | None,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run a closed loop for each batch size; yield a line and all numbers."""
    from loadtest.bench.closed_loop import run_side_by_side

    for batch in batches:
        rows_each = -(-batch // num_engines) * (beam.num_beams if beam else 1)
        engines = workload.engines(rows_each, min(num_engines, batch))
        requests = workload.requests(beam=beam, sampling=sampling)
        run_side_by_side(engines, list(islice(requests, 2 * batch)), batch)  # warm up
        count = num_requests or max(8 * batch, MIN_REQUESTS)
        result = run_side_by_side(engines, list(islice(requests, count)), batch)
        yield result.line, asdict(result)


def _compare(
    workload: "BenchWorkload",
    name: str,
    beam: BeamParams,
    sampling: SamplingParams,
    batches: Sequence[int | None],
    num_repetitions: int,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Compare at each batch size; yield a line and all numbers."""
    from loadtest.bench.comparisons import COMPARISONS, ComparisonOptions

    for batch in batches:
        options = ComparisonOptions(beam, sampling, batch, num_repetitions)
        comparison = COMPARISONS[name](workload, options)
        yield comparison.line, asdict(comparison) | {"median": comparison.median}


def _drawing(sampling: SamplingParams) -> SamplingParams:
    """Choose how a comparison draws where the options leave it open."""
    filters: dict[str, Any] = sampling.filters or COMPARED_FILTERS
    return replace(sampling, temperature=sampling.temperature or COMPARED_TEMPERATURE, **filters)


def _about(workload: "BenchWorkload") -> dict[str, Any]:
    manifest = workload.parts.bundle.manifest
    return {
        "bundle": manifest.name,
        "precision": manifest.precision,
        "device": workload.device,
        "threads": workload.threads,
    }
