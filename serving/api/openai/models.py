"""Find the model of a body: a generator or a translator.

A translator translates the prompt, or the last message of the user. The target language is in the
field `target_language` or at the end of the model's name, as in `NAME:fr`; it may be left out if
there is only one. All texts of a request are in one language: `source_language`, or identified.
"""

from collections.abc import Sequence

from serving.api.http.services import Services
from serving.api.openai.completion_body import GenerationBody
from serving.bundle.manifest import Task
from serving.errors import ModelNotFound, RequestError
from serving.language_detection import sources_of
from serving.pipelines.cards import ModelCard
from serving.pipelines.catalog import Catalog, Generator
from serving.pipelines.translation.completions import TranslatingGenerator
from serving.text.languages import matching


async def generator(services: Services, body: GenerationBody) -> Generator:
    """Return the model that answers a body. Raises RequestError and ModelNotFound."""
    card, target = await named(services.catalog, body.model)
    if card.task is not Task.TRANSLATE:
        for field in ("target_language", "source_language"):
            if (value := getattr(body, field)) is not None:
                raise RequestError(field, value, f"model {card.name} does not translate")
        return await services.catalog.named(body.model, Task.GENERATE)
    target = _target(card, target, body)
    source = body.source_language or _only(_sources(card, target))
    texts = body.source_texts
    [guess] = await sources_of(services, ["\n".join(texts)], source, target, card.name)
    translator = await services.catalog.translator(card.name, guess.language, target)
    return TranslatingGenerator(translator, texts, guess.language, target)


async def named(catalog: Catalog, name: str) -> tuple[ModelCard, str | None]:
    """Return the model of a name, and the language at the end of the name, if there is one.

    Raises ModelNotFound.
    """
    try:
        return (await catalog.named(name)).card, None
    except ModelNotFound:
        own, _, target = name.rpartition(":")
        cards = {card.name: card for card in await catalog.translator_cards()}
        if own not in cards or not target:
            raise
        return cards[own], target


async def card_of(catalog: Catalog, name: str) -> ModelCard:
    """Return the card of a model; its name may end with a target language.

    Raises ModelNotFound.
    """
    card, target = await named(catalog, name)
    if target is not None and not matching(target, card.target_languages):
        raise ModelNotFound(name)
    return card


def _target(card: ModelCard, named: str | None, body: GenerationBody) -> str:
    asked = body.target_language
    if named and asked and named != asked:
        raise RequestError("target_language", asked, f"the model's name says {named}")
    source = body.source_language
    known = card.targets_of(card.source_language(source)) if source else card.target_languages
    target = asked or named or _only(known)
    if target is None:
        message = f"is required: model {card.name} translates into {', '.join(known)}"
        raise RequestError("target_language", None, message)
    return target


def _sources(card: ModelCard, target: str) -> list[str]:
    return [source for source in card.source_languages if card.translates(source, target)]


def _only(codes: Sequence[str]) -> str | None:
    return codes[0] if len(codes) == 1 else None
