"""Says what a bundle that only encodes lets a request ask for: a source, and nothing after it."""

from serving.bundle.manifest import AttentionKind
from serving.engine.admission.rules import RequestRules
from serving.engine.generation import Generation
from serving.errors import RequestError
from serving.request import GenerationRequest


class EncodingRules(RequestRules):
    """Makes generations that have nothing to generate."""

    def accept(self, request: GenerationRequest, now: float) -> Generation:
        """Make a generation of a request. Raises RequestError."""
        self._check_source(request.source_ids)
        if request.prompt_ids or request.forced_ids or request.beam is not None:
            message = "this model only encodes: it takes a source alone"
            raise RequestError("prompt_ids", request.prompt_ids, message)
        start = request.pair_start
        if start is not None and not 0 < start < len(request.source_ids or ()):
            raise RequestError("pair_start", start, "must be inside the source")
        return Generation(
            request,
            prompt_ids=(),
            max_new_tokens=0,
            stop_ids=frozenset(),
            has_own_stops=False,
            seed=0,
            submitted_at=now,
            deadline=self._deadline(request, now),
            sights=self._sights(request, self._num_hops()),
        )

    def _num_hops(self) -> int:
        """Count what looks at a text in place of a target."""
        spec = self._manifest.attention_output(AttentionKind.HOPS)
        return int(spec.shape[2]) if spec else 0
