"""`attendant bench-compare`: compare this engine with other engines."""

import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import click

from loadtest.bench.compare_workloads import WORKLOADS, Workload

if TYPE_CHECKING:
    from loadtest.bench.compare_inputs import ComparisonInputs
    from loadtest.bench.compare_run import ComparisonPlan, Race

PEER_NAMES = (
    *("ctranslate2", "transformers", "slimt", "llama.cpp", "onnxruntime-genai"),
    "onnxruntime",
)
NEW_TOKENS, COMPLETION_TOKENS, PROMPT_TOKENS = 32, 128, 128
RATES = (5, 10, 15, 20, 25, 30, 35, 40, 50, 60, 70, 80, 100, 120, 150, 200, 300, 400)
EXTENSIONS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8")
QUICK_ROUNDS, QUICK_SENTENCES, QUICK_SECONDS, QUICK_COMPLETIONS = 2, 200, 5.0, 1
CONTEXT_SPARE = 16  # positions of a language model beyond those that are used
FILE = click.Path(path_type=Path, dir_okay=False, exists=True)


_EXAMPLES = """
\b
A model of any size to race with, with random weights, in all formats:
  PEERS/bin/python -m loadtest.bench.peers.random_marian CORPUS race
  attendant export race/hugging_face -o race/int8 --precision int8
  attendant bench-compare race/int8 --python PEERS/bin/python -o results \\
    --peer ctranslate2=race/ctranslate2 --peer transformers=race/hugging_face \\
    --input race/even.txt --file race/file.txt

\b
A language model of any size against llama.cpp's server, over HTTP, prompts of 512 tokens:
  PEERS/bin/python -m loadtest.bench.peers.random_llama CORPUS llama.gguf --kind Q4_0
  attendant export llama.gguf -o llama-int4
  attendant bench-compare llama-int4 --peer llama.cpp=llama.gguf --python PEERS/bin/python \\
    --workloads http-1,http-8,http-16 --prompt-tokens 512 -o results

\b
An embedder over 1,000 sentences, against padded batches of 32, and sorted ones of any size:
  PEERS/bin/python -m loadtest.bench.peers.random_bert CORPUS race
  attendant export race/hugging_face -o race/fp32
  attendant bench-compare race/fp32 --python PEERS/bin/python -o results \\
    --peer onnxruntime=race/onnx/fused.onnx --file race/file.txt
"""


class PeerModel(click.ParamType):
    """A peer and the model that it runs, such as ctranslate2=models/ct2."""

    name = "name=model"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, Path]:
        name, equals, model = value.partition("=")
        if not equals or name not in PEER_NAMES:
            self.fail(f"{value!r} is not NAME=MODEL, NAME one of {', '.join(PEER_NAMES)}")
        if not Path(model).exists():
            self.fail(f"{model} is not there")
        return name, Path(model)


class Names(click.ParamType):
    """Names of workloads, separated by commas."""

    name = "names"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[Workload, ...]:
        names = value.split(",")
        if unknown := [name for name in names if name not in WORKLOADS]:
            self.fail(
                f"no workload is called {', '.join(unknown)}; there are {', '.join(WORKLOADS)}"
            )
        return tuple(WORKLOADS[name] for name in names)


class Rates(click.ParamType):
    """Rising rates, separated by commas."""

    name = "rates"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[float, ...]:
        try:
            rates = tuple(map(float, value.split(",")))
        except ValueError:
            rates = ()
        if not rates or rates[0] <= 0 or list(rates) != sorted(set(rates)):
            self.fail(f"{value!r} is not a list of rising rates such as 10,20,40")
        return rates


@click.command("bench-compare", context_settings={"show_default": True}, epilog=_EXAMPLES)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option(
    "--peer", "peers", type=PeerModel(), multiple=True, help="See above; may be repeated."
)
@click.option(
    "--python",
    "interpreter",
    default=sys.executable,
    show_default="this one",
    help="Python of the environment in which the peers are installed.",
)
@click.option(
    "--workloads",
    type=Names(),
    show_default="all that the model and a peer can take",
    help="Some of: " + ", ".join(WORKLOADS) + ".",
)
@click.option(
    "--input", "even", type=FILE, show_default="built-in", help="Sentences or prompts of batches."
)
@click.option(
    "--file", type=FILE, show_default="that of --input", help="Sentences that are given at once."
)
@click.option("--references", type=FILE, help="Translations of --file, for BLEU.")
@click.option("--rounds", type=click.IntRange(1), default=3, help="Turns of each that count.")
@click.option(
    "--quick",
    is_flag=True,
    help=f"At most {QUICK_ROUNDS} rounds, {QUICK_SENTENCES} sentences of the file,"
    f" {QUICK_SECONDS:g} seconds of each rate and {QUICK_COMPLETIONS} completion of each user:"
    " to look, not to report.",
)
@click.option(
    "--cores", type=click.IntRange(1), show_default="all", help="So many for each engine."
)
@click.option("--max-new-tokens", type=click.IntRange(2), help="[default: 32; prompts: 128]")
@click.option("--prompt-tokens", type=click.IntRange(1), default=PROMPT_TOKENS)
@click.option(
    "--rates", type=Rates(), default=",".join(map(str, RATES)), help="Of `http`, a second."
)
@click.option("--seconds", type=click.FloatRange(1), default=12.0, help="Of each rate.")
@click.option(
    "--completions", type=click.IntRange(1), default=4, help="Of each user of http-N, in a turn."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="A folder.")
def bench_compare(bundle: Path, **options: Any) -> None:
    """Race the engine on BUNDLE against other engines: same weights, same inputs, same cores.

    Everyone runs in a process of its own and waits while another has its turn; all are warmed up.
    All are measured in their best settings, which are searched first: ours among the plans that a
    server measures. Reported are medians of the rounds, and ratios of neighbouring turns; also per
    second of processor, which says more on a machine that is busy. Outputs are compared: in fp32
    they should be equal. Ctrl-C and SIGTERM end everyone, and what was raced is reported.

    \b
    A peer is NAME=MODEL, its MODEL made of the same weights as BUNDLE:
      ctranslate2        folder of its converter; for `http` with source.spm and target.spm in it
      transformers       Hugging Face folder
      slimt              folder of a Firefox Translations or Bergamot model
      llama.cpp          GGUF file (xllamacpp; its wheels are compiled for AVX2, a build from
                         source uses all instructions of the processor)
      onnxruntime-genai  folder of its model builder
      onnxruntime        ONNX file of an encoder over padded batches
    One that is not installed in the environment of --python is named and skipped.

    \b
    Workloads:
      batch-N, file      sentences in flight; a file given at once (-beam-4: by beam search)
      texts              the same file, text to text, counted in words of the source
      http               the rate at which 95 of 100 sentences that come at random times are
                         answered within a second: `attendant serve` as it comes, against
                         CTranslate2 behind a small server with dynamic batching
      vectors, -sorted   a file of texts; the peer's batches in the file's order, or by length
      streams-N, http-N  completions side by side, on the bare engine and over HTTP: `attendant
                         serve` as it comes, against llama.cpp's server with N slots

    The folder of -o gets race.json with all raw times, and race.md with the table.
    """
    from loadtest.bench.compare_engines import Setup
    from loadtest.bench.compare_run import Race
    from serving.bundle.opening import open_bundle

    cores, precision = _cores(options["cores"]), str(open_bundle(bundle).manifest.precision)
    plan = _plan(bundle, options)
    context = options["prompt_tokens"] + plan.max_new_tokens + CONTEXT_SPARE
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "inputs.json"
        race = Race(plan, Setup(bundle, precision, options["interpreter"], inputs, cores, context))
        try:
            with _ended_by_signals():
                race.hold()
        finally:
            _report(race, options["output"])  # what was raced before an engine failed too


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Make Ctrl-C and SIGTERM end the comparison and its processes, also if the shell runs it in
    the background, where Ctrl-C is ignored.
    """

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, end) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _cores(count: int | None) -> frozenset[int]:
    cores = sorted(os.sched_getaffinity(0))
    if count is not None and count > len(cores):
        raise click.BadParameter(f"there are only {len(cores)}", param_hint="--cores")
    return frozenset(cores[:count])


def _plan(bundle: Path, options: dict[str, Any]) -> "ComparisonPlan":
    from loadtest.bench.compare_inputs import read_inputs
    from loadtest.bench.compare_run import ComparisonPlan

    inputs = read_inputs(
        bundle, _text(options["even"]), _text(options["file"]), options["prompt_tokens"]
    )
    is_quick = options["quick"]
    if is_quick:
        inputs = inputs.shorten(QUICK_SENTENCES)
    default = COMPLETION_TOKENS if inputs.is_of_language_model else NEW_TOKENS
    return ComparisonPlan(
        _choose_workloads(options["workloads"], inputs),
        dict(options["peers"]),
        inputs,
        _references(options["references"], inputs),
        min(options["rounds"], QUICK_ROUNDS) if is_quick else options["rounds"],
        options["max_new_tokens"] or default,
        options["rates"],
        min(options["seconds"], QUICK_SECONDS) if is_quick else options["seconds"],
        QUICK_COMPLETIONS if is_quick else options["completions"],
    )


def _text(path: Path | None) -> str | None:
    return path.read_text(encoding="utf-8") if path else None


def _choose_workloads(
    named: tuple[Workload, ...] | None, inputs: "ComparisonInputs"
) -> tuple[Workload, ...]:
    """Return the workloads that were named, or all that the model takes."""
    if named is None:
        return tuple(workload for workload in WORKLOADS.values() if workload.kind in inputs.kinds)
    if wrong := [workload.name for workload in named if workload.kind not in inputs.kinds]:
        message = f"{', '.join(wrong)}: not of this model's task"
        raise click.BadParameter(message, param_hint="--workloads")
    return named


def _references(path: Path | None, inputs: "ComparisonInputs") -> list[str] | None:
    """Return the references of the sentences that are raced over."""
    if path is None:
        return None
    lines = path.read_text(encoding="utf-8").splitlines()
    if len(lines) != inputs.num_lines_of_file:
        message = f"has {len(lines)} lines, the sentences {inputs.num_lines_of_file}"
        raise click.BadParameter(message, param_hint="--references")
    return [lines[place] for place in inputs.kept_of_file]


def _report(race: "Race", folder: Path) -> None:
    """Write the results, and show the table."""
    from loadtest.bench.compare_report import ComparisonReport

    report = ComparisonReport(_about(race), race.rows, race.missing)
    report.write(folder)
    click.echo(report.as_markdown())


def _about(race: "Race") -> dict[str, Any]:
    return {
        "bundle": race.setup.bundle.name,
        "precision": race.setup.precision,
        "cores": len(race.setup.cores),
        "rounds": race.plan.num_rounds,
        "processor": processor(),
        "versions": race.versions,
        "command": shlex.join(["attendant", "bench-compare", *sys.argv[2:]]),
    }


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the name of the processor, with the extensions that matter for matrix products."""
    lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    values = {name.strip(): value for name, _, value in (line.partition(":") for line in lines)}
    flags = [flag for flag in EXTENSIONS if flag in values.get("flags", "").split()]
    return f"{values.get('model name', 'unknown').strip()} ({', '.join(flags)})"
