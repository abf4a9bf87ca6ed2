"""What the bench asks of an engine: sentences and prompts, as requests without end."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

from serving.bundle.opening import Bundle
from serving.engine.config import Device, EngineConfig
from serving.engine.engine import Engine
from serving.parameters import ProcessorParams
from serving.request import GenerationRequest
from serving.text.tokenizer import Tokenizer

SENTENCES = """\
A man in a red jacket is waiting for the bus.
Two dogs are running through the snow.
I don't know what to say.
She has been working here for three years, and she still likes it.
The children are playing football in the park near the old church.
Where did you put the keys?
A young woman with long hair is reading a book on a bench in front of the museum.
It was raining so hard that we had to stop the car.
He told me that he would come back before the end of the week.
People are sitting around a table and eating dinner.
What time does the train leave?
The little girl is holding her father's hand while they cross the street.
I would have called you if I had known your number.
A group of people are standing on a beach, watching the sun go down.
My brother never drinks coffee.
An old man is playing the guitar on the street while a small crowd listens to him.
"""
PROMPT_NEW_TOKENS = 64


@dataclass(frozen=True)
class Workload:
    """A bundle, where to run it, and greedy requests whose texts the bench uses in turn."""

    bundle: Bundle
    device: Device
    threads: int
    wanted: Sequence[GenerationRequest]

    def engine(self, slots: int, prefix_cache_bytes: int = 0) -> Engine:
        return Engine(self.bundle, self.config(slots, prefix_cache_bytes))

    def config(self, slots: int, prefix_cache_bytes: int = 0) -> EngineConfig:
        """Caches are off: the bench repeats its texts, users do not."""
        return EngineConfig(
            slots,
            self.threads,
            self.device,
            prefix_cache_bytes=prefix_cache_bytes,
            encoder_cache_bytes=0,
        )

    def with_processors(self, processors: ProcessorParams) -> "Workload":
        wanted = [replace(request, processors=processors) for request in self.wanted]
        return replace(self, wanted=wanted)

    def requests(self, name: str = "", **changes: Any) -> Iterator[GenerationRequest]:
        """The requests again and again, changed so; `name` keeps their ids apart from others'."""
        for i, request in enumerate(cycle(self.wanted)):
            yield replace(request, request_id=f"{name}{i}", **changes)


def requests_of(
    bundle: Bundle, text: str | None, max_new_tokens: int | None
) -> list[GenerationRequest]:
    """Of `text`, or the built-in sentences. A line is a source where the model has an encoder, else
    a prompt; both are cut to the limits.
    """
    tokens, limits = bundle.manifest.tokens, bundle.manifest.limits
    lines = (SENTENCES if text is None else text).splitlines()
    encoded = Tokenizer(bundle.tokenizer_path).encode_batch(
        [each for each in lines if each.strip()]
    )
    if "encode" not in bundle.manifest.graphs:
        room = limits.max_target_tokens // 2
        count = max_new_tokens or PROMPT_NEW_TOKENS
        return [
            GenerationRequest("", None, tuple(ids[:room]), max_new_tokens=count) for ids in encoded
        ]
    room = (limits.max_source_tokens or 256) - len(tokens.source_prefix + tokens.source_suffix)
    sources = [(*tokens.source_prefix, *ids[:room], *tokens.source_suffix) for ids in encoded]
    return [GenerationRequest("", ids, max_new_tokens=max_new_tokens) for ids in sources]
