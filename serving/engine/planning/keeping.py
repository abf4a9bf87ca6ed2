"""Keeps what was measured in the user's cache folder, so that a model is measured but once here.

What is kept holds for one bundle, byte for byte, on one kind of processor, with as many CPUs, and
for these versions of the software.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from serving.bundle.manifest import MANIFEST_FILE
from serving.bundle.opening import Bundle
from serving.engine.planning.figures import Figures, Rounds
from serving.engine.planning.machine import processor_name
from serving.engine.planning.plan import Plan

_FORMAT = 1


class FiguresFile:
    """Is where the figures of one bundle on so many of this machine's CPUs are kept."""

    def __init__(self, bundle: Bundle, cpus: int, folder: Path | None = None) -> None:
        manifest = bundle.folder / MANIFEST_FILE  # it holds the checksums of all other files
        key = (
            _FORMAT,
            hashlib.sha256(manifest.read_bytes()).hexdigest(),
            processor_name(),
            os.cpu_count(),
            cpus,
            version("attendant"),
            version("onnxruntime"),
        )
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
        self._path = (folder or cache_folder()) / f"{digest[:32]}.json"

    def read(self) -> Figures:
        """Return what is kept; nothing where there is nothing that can be read."""
        try:
            document = json.loads(self._path.read_text(encoding="utf-8"))
            return {_plan(each["plan"]): _rounds(each["rounds"]) for each in document}
        except (OSError, ValueError, TypeError, KeyError):
            return {}

    def write(self, figures: Figures) -> None:
        """Keep figures, where that can be done: without them the next start measures again."""
        kept = [{"plan": asdict(plan), "rounds": asdict(each)} for plan, each in figures.items()]
        beside = self._path.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(json.dumps(kept), encoding="utf-8")
            beside.replace(self._path)


def cache_folder() -> Path:
    """Return this user's: beneath $XDG_CACHE_HOME (XDG Base Directory Specification)."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".cache") / "attendant" / "plans"


def _plan(value: dict[str, int]) -> Plan:
    return Plan(int(value["engines"]), int(value["threads"]))


def _rounds(value: dict[str, Sequence[float]]) -> Rounds:
    return Rounds(
        *(tuple(map(float, value[name])) for name in ("tokens_per_second", "step_seconds"))
    )
