"""The workloads of a comparison: number of sentences in flight, search, inputs."""

from dataclasses import dataclass
from enum import Enum
from typing import Any


class WorkloadKind(Enum):
    """The inputs and outputs of a workload.

    TRANSLATE: token ids of sentences.
    TEXTS: sentences as text.
    CONTINUE: token ids of prompts.
    ENCODE: token ids of texts whose vectors are computed.
    OPEN_LOOP: sentences over HTTP, at a rate.
    STREAMS: prompts over HTTP, by a number of users.
    """

    TRANSLATE = "translate"
    TEXTS = "texts"
    CONTINUE = "continue"
    ENCODE = "encode"
    OPEN_LOOP = "open loop"
    STREAMS = "streams"


@dataclass(frozen=True)
class Workload:
    """One row of the comparison.

    batch: sentences in flight, or users over HTTP; None submits the whole file at once.
    is_sorted: whether a peer may first sort the file by length, which a server cannot do.
    aims: the ratio of speeds that we want to reach, by peer.
    """

    name: str
    kind: WorkloadKind
    says: str
    batch: int | None = None
    beam: int = 1
    is_sorted: bool = False
    aims: tuple[tuple[str, float], ...] = ()

    def aim(self, peer: str) -> float | None:
        return dict(self.aims).get(peer)


def _both(ratio: float) -> tuple[tuple[str, float], ...]:
    return (("llama.cpp", ratio), ("onnxruntime-genai", ratio))


_ALL = (
    Workload("batch-1", WorkloadKind.TRANSLATE, "batch 1", 1, aims=(("ctranslate2", 3.0),)),
    Workload("batch-8", WorkloadKind.TRANSLATE, "batch 8", 8),
    Workload("batch-32", WorkloadKind.TRANSLATE, "batch 32", 32, aims=(("ctranslate2", 1.5),)),
    Workload("batch-64", WorkloadKind.TRANSLATE, "batch 64", 64),
    Workload(
        "batch-32-beam-4",
        WorkloadKind.TRANSLATE,
        "batch 32, beam 4",
        32,
        4,
        aims=(("ctranslate2", 1.3),),
    ),
    Workload("file", WorkloadKind.TRANSLATE, "a file at once", None, aims=(("ctranslate2", 1.5),)),
    Workload(
        "file-beam-4",
        WorkloadKind.TRANSLATE,
        "a file, beam 4",
        None,
        4,
        aims=(("ctranslate2", 1.3),),
    ),
    Workload("texts", WorkloadKind.TEXTS, "a file, text to text", aims=(("slimt", 1.5),)),
    Workload("vectors", WorkloadKind.ENCODE, "vectors of a file", aims=(("onnxruntime", 1.5),)),
    Workload("vectors-sorted", WorkloadKind.ENCODE, "vectors, sorted by length", is_sorted=True),
    Workload("http", WorkloadKind.OPEN_LOOP, "HTTP, open loop", aims=(("ctranslate2", 1.5),)),
    Workload("streams-1", WorkloadKind.CONTINUE, "1 stream", 1, aims=_both(1.1)),
    Workload("streams-8", WorkloadKind.CONTINUE, "8 streams", 8),
    Workload("streams-32", WorkloadKind.CONTINUE, "32 streams", 32, aims=_both(2.0)),
    Workload("http-1", WorkloadKind.STREAMS, "HTTP, 1 user", 1, aims=(("llama.cpp", 1.1),)),
    Workload("http-8", WorkloadKind.STREAMS, "HTTP, 8 users", 8, aims=(("llama.cpp", 2.0),)),
    Workload("http-16", WorkloadKind.STREAMS, "HTTP, 16 users", 16, aims=(("llama.cpp", 2.5),)),
    Workload("http-32", WorkloadKind.STREAMS, "HTTP, 32 users", 32, aims=(("llama.cpp", 2.5),)),
)
WORKLOADS: dict[str, Workload] = {workload.name: workload for workload in _ALL}
OF_LANGUAGE_MODELS = (WorkloadKind.CONTINUE, WorkloadKind.STREAMS)
OF_TRANSLATORS = (WorkloadKind.TRANSLATE, WorkloadKind.TEXTS, WorkloadKind.OPEN_LOOP)
OF_ENCODERS = (WorkloadKind.ENCODE,)
LEAST_INPUTS = 32
BATCHES_PER_TURN = 8


@dataclass(frozen=True)
class Inputs:
    """The ranges of the workloads' inputs among all inputs.

    num_even: number of inputs for batches, which come first.
    num_in_file: number of sentences of the file.
    """

    num_even: int
    num_in_file: int
    max_new_tokens: int

    def order(self, workload: Workload) -> dict[str, Any]:
        """Return what an engine is asked in one turn."""
        start, stop = self.num_even, self.num_even + self.num_in_file
        if workload.kind is WorkloadKind.CONTINUE and workload.batch:
            start, stop = 0, workload.batch
        elif workload.batch:
            num_inputs = max(LEAST_INPUTS, BATCHES_PER_TURN * workload.batch)
            start, stop = 0, min(num_inputs, self.num_even)
        return {
            "batch": workload.batch,
            "beam": workload.beam,
            "max_new_tokens": self.max_new_tokens,
            "inputs": [start, stop],
        }
