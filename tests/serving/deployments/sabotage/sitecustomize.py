"""Python imports this in every process that has its folder on the path, Ray's workers included.

Texts with one of these words in them break the server as nobody expects it to break.
"""

from collections.abc import Callable
from typing import Any

from serving.api.openai.shapes import AnswerShape
from serving.text.tokenizer import Tokenizer


class PanicException(BaseException):
    """As the Rust libraries raise: no Exception."""


def break_if_asked(texts: Any) -> None:
    if "VALUE" in str(texts):
        raise ValueError("the cause of it")
    if "PANIC" in str(texts):
        raise PanicException("the cause of it")


def breaking(method: Callable[..., Any]) -> Callable[..., Any]:
    def broken(self: Tokenizer, texts: Any, *options: Any, **more: Any) -> Any:
        break_if_asked(texts)
        return method(self, texts, *options, **more)

    return broken


def breaking_late(chunk: Callable[..., Any]) -> Callable[..., Any]:
    def broken(self: AnswerShape, delta: Any, options: Any) -> Any:
        if delta.num_generated_tokens > 2:
            raise PanicException("the cause of it")
        return chunk(self, delta, options)

    return broken


Tokenizer.encode = breaking(Tokenizer.encode)  # type: ignore[method-assign]
Tokenizer.encode_batch = breaking(Tokenizer.encode_batch)  # type: ignore[method-assign]
AnswerShape.chunk = breaking_late(AnswerShape.chunk)  # type: ignore[method-assign]
