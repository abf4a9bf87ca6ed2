"""Compiles what an output must look like, off the event loop: a large schema takes its time."""

import asyncio
from collections.abc import Iterable
from typing import Any

from serving.constraints import Constraint
from serving.pipelines.decoding import Decoding, Structure
from serving.text.grammar import Grammars
from serving.text.tokenizer import Tokenizer


class Structures:
    """Those of one bundle's tokenizer, which is prepared when the first is asked for."""

    def __init__(self, tokenizer: Tokenizer, stop_ids: Iterable[int]) -> None:
        self._tokenizer = tokenizer
        self._stop_ids = tuple(stop_ids)
        self._grammars: Grammars | None = None

    async def constraint(self, decoding: Decoding) -> Constraint | None:
        """None if nothing was asked. Raises RequestError for what does not compile."""
        if decoding.structure is None:
            return None
        return await asyncio.to_thread(self._compiled, decoding.structure, decoding.stop_token_ids)

    def _compiled(self, structure: Structure, stop_ids: tuple[int, ...]) -> Constraint:
        if self._grammars is None:
            self._grammars = Grammars(self._tokenizer, self._stop_ids)
        grammars, value = self._grammars, structure.value
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
