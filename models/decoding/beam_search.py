"""Searches by beams (Graves 2012; Sutskever et al. 2014, section 3.2), plainly: the reference.

One sentence at a time. What ends, what is kept and when it stops is as in Hugging Face's
`generate`, so that the three can be held against each other: this, that, and the engine.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from models.batch import device_of
from models.contract import AnyModel, GenerativeModel, S, State
from models.decoding.beginning import first_state


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
    """A text that has ended. token_ids: generated, </s> included where it came."""

    token_ids: list[int]
    score: float


@dataclass(frozen=True)
class Beam:
    """Continues one row of logits and state. logprob: of all `token_ids` together."""

    row: int
    token_ids: list[int]
    logprob: float


class Pool:
    """Keeps the best of the hypotheses that have ended, best first."""

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
        """Return whether the search may stop, given the likeliest beam that goes on."""
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
    model: AnyModel, source: list[int] | None, prompt: list[int], rules: BeamRules
) -> list[Hypothesis]:
    """Continue `prompt` (ids after <s>) for `source` ids (without </s>; None for a language model).

    Returns the best `rules.num_enough` hypotheses, best first. Scores leave the prompt out.
    """
    eos_id, device = model.config.eos_id, device_of(model)
    state: State = first_state(model, [*(source or ()), eos_id])
    given = torch.tensor([[model.config.bos_id, *prompt]], device=device)
    hidden, state = model.read(given, state)
    return _search(model, hidden[:, -1], state, rules)


def _search(
    model: GenerativeModel[S], hidden: Tensor, state: S, rules: BeamRules
) -> list[Hypothesis]:
    """Go on from what predicts the first token, hidden [1, dim]."""

    def has_ended(beam: Beam) -> bool:
        at_end = beam.token_ids[-1] == model.config.eos_id
        return at_end or len(beam.token_ids) == rules.max_new_tokens

    live, pool = [Beam(0, [], 0.0)], Pool(rules)
    while True:
        logp = model.project(hidden).float().log_softmax(-1)
        candidates = _expand(live, logp, rules.num_beams)
        pool.add([beam for beam in candidates[: rules.num_beams] if has_ended(beam)])
        live = [beam for beam in candidates if not has_ended(beam)][: rules.num_beams]
        if not live or pool.is_final(live[0]):
            return pool.hypotheses
        rows, ids = ([each.row for each in live], [each.token_ids[-1] for each in live])
        state = state.select(torch.tensor(rows, device=logp.device))
        hidden, state = model.step(torch.tensor(ids, device=logp.device), state)


def _expand(live: list[Beam], logp: Tensor, num_beams: int) -> list[Beam]:
    """Extend every beam by one token, likeliest first; logp [beams, vocabulary].

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
