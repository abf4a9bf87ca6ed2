"""The option ``--unit`` of pytest, with which `make unit` runs what ``tests/unit.txt`` names.

It fails, naming the test, where one of them does what the others must not wait for.
"""

import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
SLOW_PACKAGES = {"torch", "transformers", "onnx", "ray"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--unit", action="store_true", help="run only what tests/unit.txt names")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("unit"):
        config.pluginmanager.register(UnitTests())


def is_unit_test(path: Path) -> bool:
    """Return whether the last line of ``tests/unit.txt`` that holds the path takes it in."""
    is_included = False
    for line in (ROOT / "tests" / "unit.txt").read_text().splitlines():
        if not line.startswith("#") and path.is_relative_to(ROOT / line.removeprefix("!")):
            is_included = not line.startswith("!")
    return is_included


class UnitTests:
    """Hooks of a run with ``--unit``."""

    def __init__(self) -> None:
        self._is_running_test = False
        sys.addaudithook(self._refuse_servers)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        if collection_path.name.startswith("test_") and collection_path.is_file():
            return None if is_unit_test(collection_path) else True
        return None

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        before = SLOW_PACKAGES & sys.modules.keys()
        report = yield
        if imported := SLOW_PACKAGES & sys.modules.keys() - before:
            report.outcome = "failed"
            report.longrepr = f"{collector.nodeid} imports {', '.join(sorted(imported))}"
        return report

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        if "server_url" in getattr(item, "fixturenames", ()):
            raise pytest.UsageError(f"{item.nodeid} uses a server")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        import onnxruntime

        def refuse(*_: Any, **__: Any) -> None:
            raise AssertionError("a unit test opens an ONNX Runtime session")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(onnxruntime, "InferenceSession", refuse)
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        before = SLOW_PACKAGES & sys.modules.keys()
        self._is_running_test = True
        try:
            result = yield
        finally:
            self._is_running_test = False
        imported = SLOW_PACKAGES & sys.modules.keys() - before
        assert not imported, f"a unit test imports {', '.join(sorted(imported))}"
        return result

    def _refuse_servers(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen" and "serve" in map(str, arguments[1]):
            raise AssertionError("a unit test starts a server")
