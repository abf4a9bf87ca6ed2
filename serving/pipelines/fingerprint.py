"""Names what decides the bytes of an answer: a request that is greedy, or has a seed, is answered
the same under the same fingerprint.
"""

import hashlib
import json
from dataclasses import asdict
from importlib.metadata import version

from serving.bundle.manifest import Manifest
from serving.engine.runtime.machine import instruction_sets


def fingerprint_of(manifest: Manifest, device: str) -> str:
    """Return the fingerprint of a bundle that runs here on a device.

    Other versions of ours and of ONNX Runtime, and processors with other instructions, round
    differently.
    """
    decisive = {
        "bundle": asdict(manifest),  # with the checksums of its files
        "versions": {name: version(name) for name in ("attendant", "onnxruntime")},
        "device": device,
        "instructions": instruction_sets(),
    }
    text = json.dumps(decisive, sort_keys=True, default=str)
    return f"fp_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
