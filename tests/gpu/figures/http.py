"""HTTP over the bare engine: as many users as requests in flight, of one served Transformer-base.

Both sides are the project's own commands, with the same sentences.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loadtest.bench.workload import SENTENCES
from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle
from serving.engine.runtime.machine import available_cpus
from tests.gpu.bundles import bundle_of
from tests.gpu.figures.shapes import shape_at
from tests.gpu.findings import Aim, Finding
from tests.gpu.host import ROOT
from tests.gpu.parts import Place
from tests.served import served


def find(place: Place) -> Iterator[Finding]:
    shape = shape_at(place)
    users, seconds = (2, 1) if place.is_tiny else (64, 15)
    bundle = bundle_of(shape.architecture, shape.sizes, Precision.FP16, place.folder)
    sentences = place.folder / "sentences.txt"
    sentences.write_text(SENTENCES)
    bare = _bare(place, bundle, sentences, users)
    yield Finding(f"{users} requests in flight: engine", bare, "tokens/s")
    served_rate = _served(place, bundle, sentences, users, seconds)
    name = f"{users} users on {available_cpus()} CPUs: HTTP over the bare engine"
    aim, note = Aim("at least", 0.9), f"{served_rate:,.0f} tokens/s"
    yield Finding(name, served_rate / bare, "", aim, note)


def _bare(place: Place, bundle: Bundle, sentences: Path, users: int) -> float:
    options = ["--batch", str(users), "--device", place.device, "--input", str(sentences)]
    return float(
        _attendant("bench", str(bundle.folder), *options)["results"][0]["tokens_per_second"]
    )


def _served(place: Place, bundle: Bundle, sentences: Path, users: int, seconds: int) -> float:
    group: dict[str, Any] = {"bundles": [bundle.folder], "device": place.device, "slots": users}
    group |= {"encoder_cache_mib": 0, "prefix_cache_mib": 0}
    if place.device == "cuda":
        group["cpus_per_replica"] = max(available_cpus() // 2, 1)
    with served({"groups": [group]}, place.folder) as url:
        options = ["--users", str(users), "--duration", str(seconds), "--input", str(sentences)]
        record = ["--record", str(place.folder / "recording.jsonl")]
        found = _attendant("loadtest", url, *options, *record)
    return float(found["figures"]["tokens_per_second"]["value"])


def _attendant(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "serving.cli", *arguments, "--json"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found
