"""Gives every request what a translation model's bundle has beside the text: shared by all that
build requests, so that what is measured is what is served.
"""

from dataclasses import replace
from math import ceil

from serving.bundle.manifest import Manifest
from serving.parameters import TokenIds
from serving.pipelines.defaults import MAX_LENGTH_FACTOR, MAX_NEW_TOKENS
from serving.pipelines.translation.sides import Affixes
from serving.request import GenerationRequest
from serving.text.shortlist import Shortlist


class Framing:
    def __init__(self, manifest: Manifest, shortlist: Shortlist | None = None) -> None:
        self._num_prefix = len(manifest.tokens.prompt_prefix)
        self._defaults = manifest.generation
        self._shortlist = shortlist

    def completed(self, request: GenerationRequest, affixes: Affixes) -> GenerationRequest:
        return replace(
            request,
            prompt_ids=affixes.prompt,
            beam=request.beam and replace(request.beam, num_counted=self.num_counted(affixes)),
            shortlist=self._shortlist.of(request.source_ids or ()) if self._shortlist else None,
        )

    def num_counted(self, affixes: Affixes) -> int:
        """Count what of a prompt is part of a beam search's lengths: all but its first token, as in
        Hugging Face's `generate`.
        """
        return max(self._num_prefix + len(affixes.prompt) - 1, 0)

    def max_new_tokens(self, source_ids: TokenIds) -> int | None:
        """Return the least of the model's own limits; None if it has none."""
        limit: int | None = self._defaults.get(MAX_NEW_TOKENS)
        if (factor := self._defaults.get(MAX_LENGTH_FACTOR)) is None:
            return limit
        by_source = ceil(factor * len(source_ids))
        return by_source if limit is None else min(limit, by_source)
