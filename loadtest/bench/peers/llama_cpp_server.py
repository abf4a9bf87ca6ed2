"""llama.cpp's own server, from the package xllamacpp, with continuous batching.

    PEERS/bin/python llama_cpp_server.py MODEL PORT SETTINGS

MODEL is a GGUF file, SETTINGS are JSON:

    streams  requests in flight, each in a slot
    context  positions of a slot
    cores    threads, for prompts and for single tokens

Prompts are read anew: the server keeps none of an earlier request. Wheels of xllamacpp are compiled
for AVX2; built from source it uses all instructions of the processor. The module runs where
xllamacpp is, and imports nothing of this project.
"""

import importlib
import json
import signal
import sys
from typing import Any

NOT_INSTALLED = 3


def start(model: str, settings: dict[str, Any], port: int = 0) -> Any:
    """Start the server in threads of this process; it ends with the returned object.

    port: 0 is any. Raises ImportError.
    """
    xllamacpp = importlib.import_module("xllamacpp")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.port = port
    parameters.n_parallel = settings["streams"]
    parameters.n_ctx = settings["streams"] * settings["context"]
    parameters.cpuparams.n_threads = settings["cores"]
    parameters.cpuparams_batch.n_threads = settings["cores"]
    parameters.fit_params = False
    parameters.cache_prompt = False
    parameters.cache_ram_mib = 0
    parameters.ui = False
    parameters.verbosity = 0
    return xllamacpp.Server(parameters)


def main(model: str, port: str, settings: str) -> None:
    """Serve until SIGTERM."""
    try:
        server = start(model, json.loads(settings), int(port))
    except ImportError as error:
        print(error, file=sys.stderr)
        raise SystemExit(NOT_INSTALLED) from None
    print(f"llama.cpp listens on {server.listening_address}", file=sys.stderr)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
