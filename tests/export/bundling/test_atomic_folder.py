"""A bundle is replaced in one step: a program killed at any moment leaves a whole one."""

import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from serving.bundle import replacement
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle, write_manifest
from serving.bundle.replacement import replace_bundle, restore_replaced_bundle
from tests.tiny import tiny_bundle

REPLACE = """
import os, shutil, signal, sys
from pathlib import Path
from export.bundling.atomic_folder import atomic_folder
from serving.bundle import replacement

source, target = map(Path, sys.argv[1:3])
can_exchange, kill_at = map(int, sys.argv[3:])
exchange, num_steps, is_counting = replacement._exchange, 0, False

def count_step():
    global num_steps
    num_steps += is_counting
    if num_steps == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)

def exchange_or_not(one, other):
    count_step()
    result = exchange(one, other) if can_exchange else False
    count_step()
    return result

replacement._exchange = exchange_or_not
sys.addaudithook(lambda event, _: event in STEPS and count_step())
STEPS = ("os.rename", "shutil.rmtree", "os.remove", "os.rmdir")
with atomic_folder(target) as folder:
    shutil.copytree(source, folder, dirs_exist_ok=True)
    is_counting = True
"""


@pytest.mark.parametrize("can_exchange", [1, 0])
def test_a_kill_at_any_step_leaves_a_whole_bundle(tmp_path: Path, can_exchange: int) -> None:
    first = tiny_bundle("llama", tmp_path, Precision.FP32)
    second = tmp_path / "second"
    shutil.copytree(first, second)
    write_manifest(second, replace(open_bundle(second).manifest, name="second"))
    names = []
    for kill_at in range(1, 100):
        target = tmp_path / str(kill_at) / "bundle"
        shutil.copytree(first, target)
        arguments = [str(second), str(target), str(can_exchange), str(kill_at)]
        end = subprocess.run([sys.executable, "-c", REPLACE, *arguments], check=False).returncode
        assert end in (0, -signal.SIGKILL)
        names.append(open_bundle(target).manifest.name)  # with all checksums
        if end == 0:
            break
    num_first = names.count("llama")
    assert 0 < num_first < len(names) > 4
    assert names == ["llama"] * num_first + ["second"] * (len(names) - num_first)
    assert list((tmp_path / str(kill_at)).iterdir()) == [target]


def test_what_a_killed_program_left_is_replaced_too(tmp_path: Path) -> None:
    bundle = tiny_bundle("llama", tmp_path / "mine", Precision.FP32)
    target = tmp_path / "bundle"
    shutil.copytree(bundle, tmp_path / ".bundle.replaced")
    assert open_bundle(target).folder == target
    shutil.copytree(bundle, tmp_path / ".bundle.replaced")
    arguments = [str(bundle), str(target), "0", "0"]
    subprocess.run([sys.executable, "-c", REPLACE, *arguments], check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "mine"]


def test_a_bundle_that_is_opened_between_the_renames_is_replaced_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that opens it then finds none, and gives the earlier one its name back."""
    new, old = tmp_path / "new", tmp_path / "bundle"
    for folder in (new, old):
        folder.mkdir()
        (folder / "name").write_text(folder.name)
    rename, times = Path.rename, iter(range(3))

    def rename_and_open(path: Path, target: Path) -> Path:
        renamed = rename(path, target)
        if path == old and next(times, None) is not None:
            restore_replaced_bundle(old)
            assert (old / "name").read_text() == "bundle"
        return renamed

    monkeypatch.setattr(replacement, "_exchange", lambda one, other: False)
    monkeypatch.setattr(Path, "rename", rename_and_open)
    replace_bundle(new, old)

    assert (old / "name").read_text() == "new"
    assert (new / "name").read_text() == "bundle"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "new"]
