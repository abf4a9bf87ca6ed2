"""Says what the request at each place of a run asks: the text, the kind, the model, the mishaps.

It depends on the plan and the place alone, so that it is the same however many processes share the
requests, and each can make its own.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.plan import WorkPlan
from loadtest.work.bad import FAULTS
from loadtest.work.corpora import read_texts
from loadtest.work.mix import Mix
from loadtest.work.texts import Prompts, Texts, beginnings


@dataclass(frozen=True, slots=True)
class Item:
    """Holds what one request asks.

    beginning: what it shares with others, before its own text. hangs_up: it is to be cut off at
    some time. fault: what is to be broken about it.
    """

    id: int
    kind: str
    protocol: str
    model: str | None
    text: str
    beginning: str | None = None
    hangs_up: bool = False
    fault: str | None = None

    @property
    def whole_text(self) -> str:
        return f"{self.beginning} {self.text}" if self.beginning else self.text


class Work:
    """Makes the items of a run. Raises PlanError where there are no texts for it.

    texts: those of a trace, which come in their own order and are not varied.
    """

    def __init__(self, plan: WorkPlan, texts: Sequence[str] | None = None) -> None:
        self._plan = plan
        self._mixes = [Mix(target.mix) for target in plan.targets]
        self._given = texts
        lengths = "paragraphs" if plan.prompt_words else plan.lengths
        self._pool = Texts(read_texts(plan.input, lengths, plan.words), plan.seed, plan.repeats)
        self._texts: Texts | Prompts = self._pool
        if plan.prompt_words:
            self._texts = Prompts(self._pool, plan.prompt_words, plan.seed)
        paragraphs = Texts(read_texts(None, "paragraphs", None), plan.seed + 1)
        self._beginnings = beginnings(paragraphs, plan.shared_prefix_words, plan.num_prefixes)

    @property
    def num_texts(self) -> int:
        """Return how many texts there are before they come again, varied."""
        return len(self._pool if self._given is None else self._given)

    def item(self, place: int) -> Item:
        plan = self._plan
        draws = random.Random((plan.seed << 40) + plan.skipped_texts + place)
        number = draws.randrange(len(plan.targets))
        target, kind = plan.targets[number], self._mixes[number].draw(draws)
        is_bad = draws.random() < plan.bad
        return Item(
            id=place,
            kind="bad" if is_bad else kind,
            protocol=target.protocol,
            model=target.model,
            text=self._text(place),
            beginning=draws.choice(self._beginnings) if self._beginnings else None,
            hangs_up=not is_bad and draws.random() < plan.disconnect,
            fault=draws.choice(FAULTS) if is_bad else None,
        )

    def _text(self, place: int) -> str:
        if self._given is not None:
            return self._given[place % len(self._given)]
        return self._texts[self._plan.skipped_texts + place]
