"""ONNX Runtime as we load it leaves nothing of its own behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from serving.bundle.manifest import Precision
from tests.tiny import tiny_bundle

PROGRAM = """
import sys
from serving.bundle.opening import open_bundle
from serving.engine.config import EngineConfig
from serving.engine.runtime.session import open_graphs
open_graphs(open_bundle(sys.argv[1]), EngineConfig(threads=1))
"""


@pytest.mark.parametrize("variable", ["HOME", "XDG_CACHE_HOME"])
def test_a_session_leaves_nothing_in_the_home_directory(variable: str, tmp_path: Path) -> None:
    """Its telemetry would keep an id of the machine and a database there."""
    bundle, home = tiny_bundle("llama", tmp_path / "bundles", Precision.INT8), tmp_path / "home"
    home.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ORT_")}
    environment.pop("XDG_CACHE_HOME", None)
    command = [sys.executable, "-c", PROGRAM, str(bundle)]
    subprocess.run(command, env=environment | {variable: str(home)}, check=True)
    assert list(home.rglob("*")) == []
