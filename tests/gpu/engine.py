"""The engine's own tests over real graphs, with its states in the device's memory."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from tests.gpu.findings import Finding, none_of
from tests.gpu.host import ROOT
from tests.gpu.parts import Place

FILES = ["test_company.py", "test_bundles.py", "test_all_families.py"]
TINY = "transformer and (63 or prompt_may)"  # of the tests' names, on a CPU


def find(place: Place) -> Iterator[Finding]:
    """File by file, so that what is known by then stays when time is up."""
    if importlib.util.find_spec("pytest") is None:
        raise ModuleNotFoundError("No module named 'pytest'")
    for name in FILES[1:2] if place.is_tiny else FILES:
        yield _of_file(place, name)


def _of_file(place: Place, name: str) -> Finding:
    report = place.folder / f"{name}.xml"
    done = subprocess.run(
        _command(place, name, report),
        cwd=ROOT,
        env={**os.environ, "ATTENDANT_TEST_DEVICE": place.device, "PYTHONPATH": _path()},
    )
    if not report.exists():
        raise RuntimeError(f"pytest ended with status {done.returncode} and no report")
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [_failure(case) for case in cases if _is_failed(case)]
    num_skipped = sum(case.find("skipped") is not None for case in cases)
    assert len(cases) > num_skipped, f"{name}: nothing ran"
    return none_of(f"{name}: tests that fail", failed, f"of {len(cases) - num_skipped}")


def _path() -> str:
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


def _command(place: Place, name: str, report: Path) -> list[str]:
    """Without the project's options, whose plugins a host with a GPU need not have."""
    chosen = ["-k", TINY] if place.is_tiny else []
    return [
        *(sys.executable, "-m", "pytest", "-q", "-c", os.devnull, f"--rootdir={ROOT}"),
        *("--import-mode=importlib", "--noconftest", "-p", "no:cacheprovider"),
        *(f"--junit-xml={report}", *chosen, f"{ROOT}/tests/serving/engine/{name}"),
    ]


def _is_failed(case: ElementTree.Element) -> bool:
    return case.find("failure") is not None or case.find("error") is not None


def _failure(case: ElementTree.Element) -> str:
    problem = case.find("failure")
    message = "" if problem is None else problem.get("message", "").split("\n")[0][:100]
    return f"{case.get('name')}: {message}"
