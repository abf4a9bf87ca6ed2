"""Several exports in one process: each is answered when it is whole, and the first failure ends."""

import io
import shlex
from pathlib import Path

import pytest

from export import batch
from serving.bundle.opening import open_bundle
from tests.tiny import tiny_checkpoint


def run(monkeypatch: pytest.MonkeyPatch, *commands: list[str]) -> None:
    lines = "".join(f"{shlex.join(command)}\n" for command in commands)
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    batch.main()


def test_each_export_is_answered_and_the_first_failure_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a checkpoint"
    tiny_checkpoint("bahdanau", folder)

    def command(source: Path, output: str) -> list[str]:
        options = ["--output", str(tmp_path / output), "--precision", "int8", "--no-verify"]
        return ["export", str(source), *options]

    run(monkeypatch, command(folder, "one"), command(folder, "two"))
    assert capsys.readouterr().out == "\n\n"
    assert open_bundle(tmp_path / "one").manifest.precision == "int8"
    assert open_bundle(tmp_path / "two").manifest.precision == "int8"

    with pytest.raises(SystemExit) as caught:
        run(monkeypatch, command(tmp_path / "none", "three"), command(folder, "four"))
    output = capsys.readouterr()
    assert caught.value.code == 2 and output.out == "" and "none" in output.err
    assert not (tmp_path / "three").exists() and not (tmp_path / "four").exists()
