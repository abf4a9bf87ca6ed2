"""Beam search (Graves 2012; Sutskever et al. 2014, section 3.2), plainly: the reference.

One sentence at a time. What ends, what is kept and when it stops is as in Hugging Face's
`generate`, so that the three can be held against each other: this, that, and the engine.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from models.batch import device_of


@dataclass(frozen=True)
class BeamRules:
    """length_penalty: n tokens, </s> included, with log-probability s score s / n**length_penalty:
        Wu et al. 2016, equation 14, with a plain power of the length and no coverage.
    early_stopping: True stops when `num_enough` have ended; False when no live beam's score so far
        is better than the worst of them; "never" when none can become better.
    patience: num_beams times this many are enough (Kasai et al. 2024).
    """

    num_beams: int
    max_new_tokens: int
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    patience: float = 1.0

    @property
    def num_enough(self) -> int:
        return max(round(self.num_beams * self.patience), 1)


@dataclass(frozen=True)
class Hypothesis:
    """token_ids: generated, </s> included where it came."""

    token_ids: list[int]
    score: float


@dataclass(frozen=True)
class Beam:
    """row: which row of logits and state it continues. logprob: of all `token_ids` together."""

    row: int
    token_ids: list[int]
    logprob: float


class Pool:
    """The best of the hypotheses that have ended, best first."""

    def __init__(self, rules: BeamRules) -> None:
        self._rules = rules
        self.hypotheses: list[Hypothesis] = []

    def add(self, ended: list[Beam]) -> None:
        for beam in ended:
            score = self._score(beam.logprob, len(beam.token_ids))
            self.hypotheses.append(Hypothesis(beam.token_ids, score))
        self.hypotheses.sort(key=lambda hypothesis: -hypothesis.score)
        del self.hypotheses[self._rules.num_enough :]

    def is_final(self, best_live: Beam) -> bool:
        """Whether the search may stop, given the likeliest beam that goes on."""
        rules = self._rules
        if len(self.hypotheses) < rules.num_enough:
            return False
        length = len(best_live.token_ids)
        if rules.early_stopping == "never" and rules.length_penalty > 0:
            length = rules.max_new_tokens
        bound = self._score(best_live.logprob, length)
        return rules.early_stopping is True or bound <= self.hypotheses[-1].score

    def _score(self, logprob: float, length: int) -> float:
        return logprob / length**self._rules.length_penalty


@torch.inference_mode()
def beam_search(
    module: nn.Module, source: list[int] | None, prompt: list[int], rules: BeamRules
) -> list[Hypothesis]:
    """Continue `prompt` (ids after <s>) for `source` ids (without </s>; None for a language model).

    Returns the best `rules.num_enough` hypotheses, best first. Scores leave the prompt out.
    """
    eos_id = module.config.eos_id

    def has_ended(beam: Beam) -> bool:
        return beam.token_ids[-1] == eos_id or len(beam.token_ids) == rules.max_new_tokens

    logp, state = _read(module, source, [module.config.bos_id, *prompt])
    live, pool = [Beam(0, [], 0.0)], Pool(rules)
    while True:
        candidates = _expand(live, logp, rules.num_beams)
        pool.add([beam for beam in candidates[: rules.num_beams] if has_ended(beam)])
        live = [beam for beam in candidates if not has_ended(beam)][: rules.num_beams]
        if not live or pool.is_final(live[0]):
            return pool.hypotheses
        state = select_rows(state, torch.tensor([beam.row for beam in live], device=logp.device))
        logp, state = _step(module, [beam.token_ids[-1] for beam in live], state)


def _expand(live: list[Beam], logp: Tensor, num_beams: int) -> list[Beam]:
    """Every beam by one token, likeliest first; logp [beams, vocabulary].

    No more than num_beams + 1 tokens of one beam can matter: those that go on, and </s>.
    """
    values, ids = logp.topk(min(num_beams + 1, logp.shape[1]))
    candidates = [
        Beam(row, [*beam.token_ids, token_id], beam.logprob + logprob)
        for row, (beam, *columns) in enumerate(
            zip(live, values.tolist(), ids.tolist(), strict=True)
        )
        for logprob, token_id in zip(*columns, strict=True)
    ]
    return sorted(candidates, key=lambda beam: -beam.logprob)


def _read(module: nn.Module, source: list[int] | None, target: list[int]) -> tuple[Tensor, Any]:
    """Log-probabilities [1, vocabulary] of what follows `target`, and the state there."""
    device = device_of(module)
    if source is None:
        hidden, state = module.start(torch.tensor([target], device=device))
        return _log_probabilities(module, hidden), state
    source_ids = torch.tensor([[*source, module.config.eos_id]], device=device)
    state = module.start(source_ids, torch.tensor([source_ids.shape[1]], device=device))
    for token_id in target:
        logp, state = _step(module, [token_id], state)
    return logp, state


def _step(module: nn.Module, ids: list[int], state: Any) -> tuple[Tensor, Any]:
    hidden, state = module.step(torch.tensor(ids, device=device_of(module)), state)
    return _log_probabilities(module, hidden), state


def _log_probabilities(module: nn.Module, hidden: Tensor) -> Tensor:
    return module.project(hidden).float().log_softmax(-1)


def select_rows(state: Any, rows: Tensor) -> Any:
    """These rows of every tensor of a state, in this order; a row may come more than once."""
    if isinstance(state, Tensor):
        return state[rows]
    if isinstance(state, dict):
        return {name: select_rows(part, rows) for name, part in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(select_rows(part, rows) for part in state)
    return state
