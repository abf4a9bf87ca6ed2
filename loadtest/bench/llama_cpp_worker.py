"""Takes llama-cpp-python's turns for `against_llama_cpp`, in an environment of its own; it imports
nothing of ours.

Reads lines of JSON {"prompt": token ids, "tokens": how many to generate}, and answers each with a
line {"first": seconds to the first token, "rest": seconds of the others, "ids": all}.
"""

import importlib
import json
import sys
import time
from typing import Any


def run(model: Any, prompt: list[int], num_tokens: int) -> dict[str, Any]:
    """Generate greedily; nothing is kept of an earlier run."""
    model.reset()
    started = time.perf_counter()
    tokens = model.generate(prompt, temp=0.0, repeat_penalty=1.0)
    ids = [next(tokens)]
    first = time.perf_counter()
    ids += [next(tokens) for _ in range(num_tokens - 1)]
    ended = time.perf_counter()
    return {"first": first - started, "rest": ended - first, "ids": ids}


def main(path: str, threads: str, context: str) -> None:
    model = importlib.import_module("llama_cpp").Llama(
        path,
        n_ctx=int(context),
        n_threads=int(threads),
        n_threads_batch=int(threads),
        verbose=False,
    )
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(run(model, order["prompt"], order["tokens"])), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
