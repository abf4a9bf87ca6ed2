"""How next tokens are decided: what every search reads and answers.

`Sampling` is one search, with greedy decoding as its special case. A search owns whatever it must
remember per row and is told when rows come and move; it knows nothing of states, graphs or requests
that wait.
"""

from dataclasses import dataclass
from typing import Protocol

from serving.engine.generation import Generation
from serving.engine.memory import Array


@dataclass(slots=True)
class Scores:
    """What the step graph says of each row's next token; log-probabilities of the model's own
    distribution.

    logp: f32 [rows, vocabulary]
    top_logp: f32 [rows, window], the likeliest, best first
    top_ids: i64 [rows, window]
    """

    logp: Array
    top_logp: Array
    top_ids: Array


@dataclass(slots=True)
class Choices:
    """token_ids: i64 [rows]; logprobs: f32 [rows], the chosen tokens' log-probabilities."""

    token_ids: Array
    logprobs: Array


class Search(Protocol):
    def admit(self, row: int, generation: Generation) -> None: ...

    def move(self, source: int, target: int) -> None:
        """Row `source` goes into row `target`, whose own generation has left."""

    def choose(self, scores: Scores) -> Choices: ...
