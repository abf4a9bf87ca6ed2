"""Runs the graph of a bundle that only encodes, and gives what it writes for each row."""

from collections.abc import Sequence

import numpy as np

from serving.arrays import Array
from serving.bundle.manifest import EMBEDDING, LOGITS, Manifest, Task
from serving.engine.graphs.encoder import Encoder
from serving.engine.graphs.graph import Graphs
from serving.request import GenerationRequest, Vector


class Vectors:
    """Holds the graph, and the memory that it writes to.

    max_rows: of one run.
    """

    def __init__(self, manifest: Manifest, graphs: Graphs, max_rows: int) -> None:
        encoder, is_embedder = manifest.encoder, manifest.task is Task.EMBED
        assert encoder is not None and graphs.encode is not None
        self._name = EMBEDDING if is_embedder else LOGITS
        width = encoder.dimension if is_embedder else len(encoder.labels)
        assert width is not None
        self._written = np.zeros((max_rows, width), np.float32)
        self._encoder = Encoder(manifest, graphs, self._scratch)

    def of(self, requests: Sequence[GenerationRequest], span: int) -> list[Vector]:
        """Return the vector of each request, whose source is padded to `span`."""
        sources = [request.source_ids or () for request in requests]
        self._encoder.run(sources, span, [request.pair_start for request in requests])
        return list(self._written[: len(requests)].copy())

    def look(self, request: GenerationRequest, span: int) -> Array:
        """Tell what the tokens of a request's source look at; see `Encoder.run_telling`."""
        return self._encoder.run_telling(request.source_ids or (), span, request.pair_start)

    def warm_up(self) -> None:
        self._encoder.warm_up()

    def _scratch(self, num_rows: int, span: int) -> dict[str, Array]:
        return {self._name: self._written[:num_rows]}
