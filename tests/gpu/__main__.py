"""Proves, on a host with a GPU, what can only be shown there; writes what it finds as it goes.

    python -m tests.gpu [--minutes N] [--only PART ...] [--out FOLDER]

Parts that a folder has results of stay in its report until they are run again, so that a run may
be taken up where it was cut off. Without a GPU: one line, and status 3. `--device cpu` runs the
same parts at tiny sizes on the CPU, to test them.
"""

import argparse
import sys
from pathlib import Path

from tests.gpu.findings import PartResult
from tests.gpu.host import describe, missing_gpu
from tests.gpu.page import write_report
from tests.gpu.parts import PARTS
from tests.gpu.running import run_parts

NO_GPU = 3


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    problem = missing_gpu() if options.device == "cuda" else None
    if problem:
        print(problem, file=sys.stderr)
        return NO_GPU
    folder: Path = options.out
    folder.mkdir(parents=True, exist_ok=True)
    machine = describe(options.device)

    def report(result: PartResult) -> None:
        write_report(folder, machine)
        print(_line(result), flush=True)

    names = options.only or list(PARTS)
    run_parts(names, options.device, folder.resolve(), 60 * options.minutes, report)
    results = {each.name: each for each in write_report(folder, machine)}
    return 0 if all(results[name].is_good for name in names) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--minutes", type=float, default=9.5, help="for all parts (default 9.5)")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--out", type=Path, default=Path("build/gpu"), help="(default build/gpu)")
    return parser


def _line(result: PartResult) -> str:
    missed = [each.what for each in result.findings if each.outcome == "missed"]
    said = f"{len(result.findings)} findings, {len(missed)} missed"
    return f"{result.name}: {result.ended}, {result.seconds:g} s, {said}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
