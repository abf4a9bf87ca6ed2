"""Speaks LibreTranslate's protocol; kinds of decoding by the fields of this project's server."""

from typing import Any

from loadtest.plan import WorkPlan
from loadtest.protocols.protocol import ApiProtocol, Output, required_text
from loadtest.work.items import Item
from loadtest.work.mix import GREEDY, SAMPLED, num_beams


class LibreTranslate(ApiProtocol):
    path = "translate"

    def body(self, item: Item, plan: WorkPlan) -> dict[str, Any]:
        languages = {"source": plan.source, "target": plan.target}
        model = {} if item.model is None else {"model": item.model}
        text = {"q": item.whole_text, "format": "text"}
        return text | languages | model | _decoding(item)

    def output(self, answer: dict[str, Any]) -> Output:
        return Output(required_text(answer.get("translatedText"), "translatedText"))


def _decoding(item: Item) -> dict[str, Any]:
    if item.kind == GREEDY:
        return {"num_beams": 1, "temperature": 0}
    if item.kind == SAMPLED:
        return {"temperature": 1.0, "top_p": 0.95, "seed": item.id}
    width = num_beams(item.kind)
    return {} if width is None else {"num_beams": width}
