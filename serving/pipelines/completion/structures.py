"""Compile the structures that outputs must have into constraints of decoding."""

import asyncio
from collections.abc import Iterable
from typing import Any

from serving.pipelines.decoding import Structure
from serving.requests.request import Constraint
from serving.text.constraints.grammars import Grammars
from serving.text.tokenizer import Tokenizer


class StructureCompiler:
    """Compiles structures for the tokenizer of one bundle.

    Grammars are prepared on first use: some for outputs that begin a text and, where it makes a
    difference, others for outputs that continue a prompt.
    """

    def __init__(self, tokenizer: Tokenizer, stop_ids: Iterable[int]) -> None:
        self._tokenizer = tokenizer
        self._stop_ids = tuple(stop_ids)
        self._grammars: dict[bool, Grammars] = {}
        self._is_lossless = tokenizer.is_lossless

    async def compile(
        self, structure: Structure, stop_ids: tuple[int, ...], begins_text: bool
    ) -> Constraint:
        """Return the constraint that an output with the structure follows.

        Raises RequestError for a structure that does not compile.
        """
        return await asyncio.to_thread(self._compile, structure, stop_ids, begins_text)

    def _compile(
        self, structure: Structure, stop_ids: tuple[int, ...], begins_text: bool
    ) -> Constraint:
        begins_text = begins_text and not self._is_lossless
        if begins_text not in self._grammars:
            grammars = Grammars(self._tokenizer, self._stop_ids, begins_text)
            self._grammars[begins_text] = grammars
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
