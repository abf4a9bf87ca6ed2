"""The requests that plans are tried with."""

from itertools import count

import numpy as np

from serving.bundle.manifest import PIXELS, Manifest
from serving.engine.arrays import bytes_per_row
from serving.engine.states.store import max_source_tokens
from serving.requests.request import Audio, GenerationRequest, Picture

_SOURCE_TOKENS, _NEW_TOKENS, _SHORTLIST_TOKENS = 24, 32, 2048


class SampleRequests:
    """Requests of plausible size, with tokens that any model has. Threads may share them."""

    def __init__(self, manifest: Manifest) -> None:
        limits, tokens = manifest.limits, manifest.tokens
        # Half of the positions are for the prompt, the other half for the output.
        room = (limits.max_target_tokens - len(tokens.prompt_prefix) - 1) // 2
        self._manifest, self._has_source = manifest, "encode" in manifest.graphs
        longest, self._vocab_size = room, manifest.vocab_size
        if self._has_source:
            longest = max_source_tokens(manifest)
            self._vocab_size = manifest.source_vocab_size or manifest.vocab_size
        self._num_tokens = max(1, min(_SOURCE_TOKENS, longest))
        self._num_new = max(1, min(_NEW_TOKENS, room))
        shortlist = np.arange(min(_SHORTLIST_TOKENS, manifest.vocab_size))
        self._shortlist = shortlist if manifest.has_shortlist else None
        self._numbers = count()

    def __next__(self) -> GenerationRequest:
        number = next(self._numbers)
        if (spec := self._manifest.media_input) is not None:
            content = number.to_bytes(bytes_per_row(spec), "little")
            num_positions = max_source_tokens(self._manifest)
            is_picture = spec.name == PIXELS
            return GenerationRequest(
                str(number),
                max_new_tokens=self._num_new,
                ignore_eos=True,
                picture=Picture(content, num_positions) if is_picture else None,
                audio=None if is_picture else Audio(content, num_positions),
            )
        ids = tuple((7 * number + 3 * i) % self._vocab_size for i in range(self._num_tokens))
        return GenerationRequest(
            str(number),
            ids if self._has_source else None,
            () if self._has_source else ids,
            max_new_tokens=self._num_new,
            ignore_eos=True,
            shortlist=self._shortlist,
        )
