"""Finds out the source language of texts whose clients leave it open."""

import asyncio
from collections.abc import Sequence
from typing import Protocol, TypeGuard

from serving.detection.identify import Guess, Identifier
from serving.errors import RequestError
from serving.pipelines.catalog import Catalog
from serving.pipelines.pivoting import sources_for
from serving.text.languages import UNDETERMINED

AUTO = "auto"
_UNCERTAIN = 0.5  # below it, what the texts of one request have in common says more
_JOINED_CHARACTERS = 4_000


class KnowsLanguages(Protocol):
    """Has the parts of a server that this needs; `Services` is one."""

    @property
    def catalog(self) -> Catalog: ...

    @property
    def identifier(self) -> Identifier: ...


def is_told(source: str | None) -> TypeGuard[str]:
    """Check that the client has said what the language is."""
    return source not in (None, AUTO)


async def source_of(
    services: KnowsLanguages, texts: Sequence[str], source: str | None, target: str | None
) -> Guess:
    """Return the language of all texts together; raises as `sources_of`."""
    if is_told(source):
        return Guess(source, 1.0)
    among = await readable(services.catalog, target)
    return await asyncio.to_thread(_of_all, services.identifier, texts, among)


async def sources_of(
    services: KnowsLanguages,
    texts: Sequence[str],
    source: str | None,
    target: str | None,
    model: str | None = None,
) -> list[Guess]:
    """Return the language of each text: what the client says, or, of None and `AUTO`, what it is
    likeliest in of the languages that can be translated into the target.

    model: the only one that is asked what it reads, by name.

    A text that says too little has the language of all texts together. Raises RequestError where
    nothing is read here.
    """
    if is_told(source):
        return [Guess(source, 1.0)] * len(texts)
    among = await readable(services.catalog, target, model)
    return await asyncio.to_thread(_of_each, services.identifier, texts, among)


async def readable(catalog: Catalog, target: str | None, model: str | None = None) -> list[str]:
    """List the languages that the loaded models, or the one of that name, read and, if a target is
    given, can bring there.

    Raises RequestError where there is none, and ModelNotFound.
    """
    cards = [(await catalog.named(model)).card] if model else await catalog.translator_cards()
    found = [code for code in sources_for(cards, target) if code != UNDETERMINED]
    if not found and target is None:
        raise RequestError("source", AUTO, "no model here translates")
    if not found:
        raise RequestError("target", target, "no model here translates into it")
    return found


def _of_all(identifier: Identifier, texts: Sequence[str], among: Sequence[str]) -> Guess:
    joined = "\n".join(texts)[:_JOINED_CHARACTERS]
    return identifier.identify(joined, among)[0]


def _of_each(identifier: Identifier, texts: Sequence[str], among: Sequence[str]) -> list[Guess]:
    guesses = [identifier.identify(text, among)[0] for text in texts]
    if len(texts) > 1 and any(guess.confidence < _UNCERTAIN for guess in guesses):
        common = _of_all(identifier, texts, among)
        return [each if each.confidence >= _UNCERTAIN else common for each in guesses]
    return guesses
