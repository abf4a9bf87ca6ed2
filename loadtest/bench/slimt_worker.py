"""Takes slimt's turns for `against_slimt`, in an interpreter that has slimt, and nothing of ours.

For every line on standard input all sentences are translated, and a line of JSON reports the
seconds it took on the clock and in the processor.
"""

import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

FILES = {"model": "model*.bin", "vocabulary": "vocab*.spm", "shortlist": "lex*.bin"}
NOT_INSTALLED = "slimt is not installed: pip install slimt==0.1.0"


def main(folder: str, sentences: str, workers: str, way: str) -> None:
    """Take turns until the input ends.

    way: "all" sentences in one call, or "each" in a call of its own.
    """
    slimt = _load_slimt()
    files = {name: str(next(Path(folder).glob(pattern))) for name, pattern in FILES.items()}
    model = slimt.Model(slimt.preset.tiny(), slimt.Package(**files))
    service = slimt.Service(workers=int(workers))
    texts = [line.strip() for line in Path(sentences).read_text(encoding="utf-8").splitlines()]
    calls = [[text] for text in texts] if way == "each" else [texts]
    for _ in sys.stdin:
        clock, processor = time.perf_counter(), time.process_time()
        for call in calls:
            service.translate(model, call)
        seconds = time.perf_counter() - clock
        answer = {"seconds": seconds, "cpu_seconds": time.process_time() - processor}
        print(json.dumps(answer), flush=True)


def _load_slimt() -> Any:
    """Load the extension alone: `import slimt` asks the network for lists of models."""
    package = importlib.util.find_spec("slimt")
    if package is None or not package.submodule_search_locations:
        raise SystemExit(NOT_INSTALLED)
    [path] = Path(package.submodule_search_locations[0]).glob("_slimt*.so")
    spec = importlib.util.spec_from_file_location("_slimt", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(*sys.argv[1:])
