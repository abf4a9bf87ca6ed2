"""How far int8 moves log-probabilities of the small random language models of each family:

python -m tests.export.readers.hugging_face.int8_errors [family ...]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from export.bundling.running import GraphRows
from export.bundling.writer import export_checkpoint
from export.readers.hugging_face.families import read_checkpoint
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from tests.export.readers.hugging_face.language_models import (
    BOS,
    FAMILIES,
    log_probabilities,
    prompts,
    random_model,
    save,
)


def errors(family: str, folder: Path, precision: Precision) -> np.ndarray:
    """Return absolute differences to `transformers` in fp32 after 20 prompts, in nats."""
    model = random_model(family)
    export_checkpoint(read_checkpoint(save(model, folder / "theirs")), folder / "ours", precision)
    bundle, found = open_bundle(folder / "ours"), []
    for prompt in prompts(20):
        ids = [BOS, *prompt]
        [logp] = GraphRows(bundle, [[]]).read([ids])
        found.append(np.abs(logp - log_probabilities(model, ids)[-1]))
    return np.stack(found)


def main() -> None:
    print(f"{'family':18} {'mean':>6} {'99 %':>6} {'most':>6}")
    for family in sys.argv[1:] or sorted(FAMILIES):
        with tempfile.TemporaryDirectory() as folder:
            found = errors(family, Path(folder), Precision.INT8)
        mean, high, most = found.mean(), np.quantile(found, 0.99), found.max()
        print(f"{family:18} {mean:6.3f} {high:6.2f} {most:6.2f}", flush=True)


if __name__ == "__main__":
    main()
