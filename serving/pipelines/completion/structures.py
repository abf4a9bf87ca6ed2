"""Compiles what an output must look like, off the event loop: a large schema takes its time."""

import asyncio
from collections.abc import Iterable
from typing import Any

from serving.constraints import Constraint
from serving.pipelines.decoding import Decoding, Structure
from serving.text.guides.grammar import Grammars
from serving.text.tokenizer import Tokenizer


class Structures:
    """Compiles structures for one bundle's tokenizer, which is prepared when the first is asked
    for: as a text begins, and as it goes on after a prompt, where that makes a difference.
    """

    def __init__(self, tokenizer: Tokenizer, stop_ids: Iterable[int]) -> None:
        self._tokenizer = tokenizer
        self._stop_ids = tuple(stop_ids)
        self._grammars: dict[bool, Grammars] = {}
        self._is_lossless = tokenizer.is_lossless

    async def constraint(self, decoding: Decoding, begins_text: bool) -> Constraint | None:
        """Return what a job's output must follow; None if nothing was asked.

        Raises RequestError for what does not compile.
        """
        structure, stop_ids = decoding.structure, decoding.stop_token_ids
        if structure is None:
            return None
        return await asyncio.to_thread(self._compiled, structure, stop_ids, begins_text)

    def _compiled(
        self, structure: Structure, stop_ids: tuple[int, ...], begins_text: bool
    ) -> Constraint:
        begins_text = begins_text and not self._is_lossless
        if begins_text not in self._grammars:
            prepared = Grammars(self._tokenizer, self._stop_ids, begins_text)
            self._grammars[begins_text] = prepared
        grammars, value = self._grammars[begins_text], structure.value
        options: dict[str, Any] = {"field": structure.field, "stop_ids": stop_ids}
        if structure.kind == "json_object":
            return grammars.json_object(**options)
        if isinstance(value, tuple):
            return grammars.choices(value, **options)
        compilers = {
            "json": grammars.json_schema,
            "regex": grammars.regex,
            "grammar": grammars.lark,
        }
        return compilers[structure.kind](value, **options)
