"""Holds what a job may ask of decoding, in the words of its text; both kinds of job carry it.

Only descriptions travel: a grammar is compiled by the process that decodes with it.
"""

from dataclasses import dataclass
from typing import Literal

from serving.parameters import GREEDY, NO_PROCESSORS, BeamParams, ProcessorParams, SamplingParams

StructureKind = Literal["json", "json_object", "regex", "choice", "grammar"]


@dataclass(frozen=True, slots=True)
class Structure:
    """Describes what an output must look like.

    value: a JSON schema, a regular expression, or a grammar in Lark's notation, as text; of a
        choice the texts to choose from.
    field: what the client calls it.
    """

    kind: StructureKind
    value: str | tuple[str, ...]
    field: str


@dataclass(frozen=True, slots=True)
class Decoding:
    """Describes how the tokens of a job are decided; see `GenerationRequest` for each field.

    processors: all but the bad words, which are texts here.
    share: on whose account the job is.
    traceparent: of the span of the request that the job is of; empty where none is kept.
    """

    sampling: SamplingParams = GREEDY
    beam: BeamParams | None = None
    processors: ProcessorParams = NO_PROCESSORS
    bad_words: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    structure: Structure | None = None
    max_new_tokens: int | None = None
    logprobs: int | None = None
    priority: int = 0
    timeout_seconds: float | None = None
    share: str = ""
    traceparent: str = ""


PLAIN = Decoding()
