"""Mistakes and help are answered at once: by the modules that are imported, on any machine."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from serving.bundle.manifest import Precision
from tests.served import ROOT
from tests.tiny import tiny_bundle

HEAVY = {"ray", "onnxruntime", "fastapi", "torch", "numpy", "tokenizers"}
RUN = """
import sys
from serving.cli import main
try:
    main()
finally:
    print("imported:", *sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""


def answer_to(*arguments: str) -> tuple[int, str, set[str]]:
    """Exit code, what was written, and the packages that were imported."""
    command = [sys.executable, "-c", RUN, *arguments]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    written, _, imported = (result.stdout + result.stderr).rpartition("imported:")
    return result.returncode, written, {*imported.split()}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_bundle("bahdanau", tmp_path_factory.mktemp("bundle"), Precision.INT8))


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["lab", "--help"], ["serve", "--help"], ["nothing"]]
)
def test_help_imports_no_command_but_its_own(arguments: list[str]) -> None:
    _, written, imported = answer_to(*arguments)

    assert written
    assert not imported & (HEAVY | {"pydantic", "yaml"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{folder}/none"], "{folder}/none: no such folder"),
        (["{folder}"], "{folder}: bundle.json: missing"),
        (["{folder}/log.txt"], "{folder}/log.txt: a file, and bundles are folders"),
        (["{bundle}", "{bundle}"], "model bahdanau: served 2 times"),
        (["{bundle}", "--port", "{taken}"], "cannot listen on 127.0.0.1:{taken}: Address already"),
        (["{bundle}", "--port", "0", "--operations-port", "{taken}"], ":{taken}: Address already"),
        (["{bundle}", "--port", "70000"], "Invalid value for '--port'"),
        (["{bundle}", "--prot", "1"], "No such option '--prot'"),
        (["{bundle}", "--keys", "{folder}/none"], "{folder}/none: No such file"),
        (["{bundle}", "--access-log", "{folder}/none/log"], "there is no such folder"),
        (["{bundle}", "--device", "cuda"], "device cuda runs bf16 and fp16 bundles"),
        (["--config", "{folder}/key.yaml"], "groups.0.bundels: Extra inputs are not permitted"),
        (["--config", "{folder}/log.txt"], "log.txt: "),
    ],
)
def test_serve_tells_a_mistake_before_it_imports_what_takes_long(
    arguments: list[str], message: str, bundle: str, tmp_path: Path
) -> None:
    (tmp_path / "log.txt").write_text("exported\n")
    group = {"bundels": [bundle]}
    (tmp_path / "key.yaml").write_text(json.dumps({"groups": [group]}))
    with socket.create_server(("127.0.0.1", 0)) as server:
        places = {"folder": tmp_path, "bundle": bundle, "taken": server.getsockname()[1]}
        code, written, imported = answer_to("serve", *(word.format(**places) for word in arguments))

    assert code == 2
    assert message.format(**places) in written
    # ONNX Runtime says whether there is a GPU.
    allowed = {"numpy", "onnxruntime"} if "cuda" in arguments else set()
    assert not imported & HEAVY - allowed
