"""Speaks DeepL's protocol, which lets a client choose no decoding."""

from typing import Any

from loadtest.plan import WorkPlan
from loadtest.protocols.protocol import ApiProtocol, Output, required_text
from loadtest.work.items import Item


class DeepL(ApiProtocol):
    path = "v2/translate"
    knows_kinds = False

    def body(self, item: Item, plan: WorkPlan) -> dict[str, Any]:
        languages = {"source_lang": plan.source.upper(), "target_lang": plan.target.upper()}
        model = {} if item.model is None else {"model": item.model}
        return {"text": [item.whole_text]} | languages | model

    def output(self, answer: dict[str, Any]) -> Output:
        translations = answer.get("translations")
        first = translations[0] if isinstance(translations, list) and translations else None
        text = first.get("text") if isinstance(first, dict) else None
        return Output(required_text(text, "translations"))
