"""All errors that the server raises on purpose; `serving/api` answers each in its protocol's form.

AttendantError
├── ProblemsError       a file or folder cannot be used; all its problems together
│   ├── BundleError     a bundle cannot be served
│   └── ConfigError     the configuration of the server is wrong
├── PartEnded           a process that the server needs has ended; start the server again
├── DeviceError         the device is missing, or cannot run this bundle
├── StorageError        the state of the server cannot be used
├── DocumentsFull       too many documents are stored; try again later
├── DocumentNotReady    the document is not translated yet; try again later
├── DocumentTaken       the document is being fetched, which is possible once
├── RequestError        the request is wrong; names the field and the value
│   ├── TooLarge        more than any request may contain
│   ├── Untokenizable   the model's tokenizer fails at this text
│   ├── WrongMediaType  a body, or the answer that is asked for, has an unsupported format
│   ├── ModelNotFound   no such model
│   ├── DocumentNotFound  no such document, or not with this key
│   ├── GlossaryNotFound  no such glossary of this key
│   ├── TranslationMemoryNotFound  no such translation memory of this key
│   └── NoSuchObject    no such file or batch of this key
├── KeyRefused          the request has no key that the server accepts
├── RateExceeded        more than the key may ask for now; try again later
├── QuotaExceeded       more than the key may use in a month, or store
├── Overloaded          the queue is too long; try again later
├── DeadlineExceeded    the timeout of the request has passed
└── EngineError         the engine failed while it served a request
    ├── OutOfMemory     the memory of the device is full; try again later
    └── EngineStopped   the engine is shut down, or is shutting down
"""

import json
from collections.abc import Iterable
from copy import copy
from typing import Any, Self


class AttendantError(Exception):
    """The base class. Errors can be pickled, with all their attributes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class ProblemsError(AttendantError):
    def __init__(self, path: object, problems: list[str]) -> None:
        super().__init__(f"{path}: " + "; ".join(problems))
        self.path = str(path)
        self.problems = list(problems)


class BundleError(ProblemsError):
    pass


class ConfigError(ProblemsError):
    pass


class PartEnded(AttendantError):
    pass


class DeviceError(AttendantError):
    pass


class StorageError(AttendantError):
    """place: the folder or the database. advice: what to do."""

    def __init__(
        self, place: object, reason: object, advice: str = "name another folder with --state"
    ) -> None:
        super().__init__("; ".join(filter(None, (f"{place}: {reason}", advice))))


class RequestError(AttendantError):
    def __init__(self, field: str, value: object, message: str) -> None:
        super().__init__(f"{field}: {message} (got {shorten(value)})")
        self.field = field
        self.value = value
        self.message = message

    def with_field(self, field: str) -> Self:
        """Return the same error with another name of its field."""
        error = copy(self)
        RequestError.__init__(error, field, self.value, self.message)
        return error

    def with_value(self, value: object) -> Self:
        """Return the same error with another value."""
        error = copy(self)
        RequestError.__init__(error, self.field, value, self.message)
        return error


class TooLarge(RequestError):
    pass


class TooManyTokens(RequestError):
    """More tokens than the model's context has room for."""


class Untokenizable(RequestError):
    pass


class ModelNotFound(RequestError):
    """names: of the models to choose from."""

    def __init__(self, model: object, names: Iterable[str] = ()) -> None:
        listed = ", ".join(names)
        super().__init__("model", model, "no such model" + (listed and f"; there are: {listed}"))


CONTENT_ENCODING = "Content-Encoding"


class WrongMediaType(RequestError):
    """field: the header that names the type, or the encoding."""


class DocumentNotFound(RequestError):
    def __init__(self, document: object) -> None:
        super().__init__("document_id", document, "no such document, or not with this key")


class DocumentNotReady(AttendantError):
    def __init__(self, seconds_remaining: float | None) -> None:
        super().__init__("the document is not translated yet; try again")
        self.retry_after_seconds = seconds_remaining or 1.0


class DocumentTaken(AttendantError):
    def __init__(self) -> None:
        super().__init__("the document is being fetched by another request; try again")
        self.retry_after_seconds = 1.0


class DocumentsFull(AttendantError):
    def __init__(self) -> None:
        super().__init__("there is no room for more documents; try again later")
        self.retry_after_seconds = 60.0


class GlossaryNotFound(RequestError):
    def __init__(self, glossary: object) -> None:
        super().__init__("glossary_id", glossary, "no such glossary")


class TranslationMemoryNotFound(RequestError):
    def __init__(self, memory: object) -> None:
        super().__init__("translation_memory_id", memory, "no such translation memory")


class NoSuchObject(RequestError):
    def __init__(self, field: str, value: object) -> None:
        super().__init__(field, value, "no such object")


class Overloaded(AttendantError):
    """retry_after_seconds: until the requests that wait now are answered. is_for_all: a request of
    ordinary size would have been refused too.
    """

    def __init__(
        self, waiting: int, retry_after_seconds: float = 1.0, is_for_all: bool = False
    ) -> None:
        super().__init__(
            f"{waiting} requests are waiting already; try again in {retry_after_seconds:.1f} s"
        )
        self.waiting = waiting
        self.retry_after_seconds = retry_after_seconds
        self.is_for_all = is_for_all


class KeyRefused(AttendantError):
    """place: which key is needed, and how it is sent."""

    def __init__(self, problem: str, place: str) -> None:
        super().__init__(f"{problem}; this request needs {place}")


class RateExceeded(AttendantError):
    def __init__(self, key: str, rate: str, retry_after_seconds: float) -> None:
        super().__init__(f"key {key} may ask for no more than {rate}; try again")
        self.retry_after_seconds = retry_after_seconds


class QuotaExceeded(AttendantError):
    """retry_after_seconds: until the next month; None if waiting does not help."""

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class DeadlineExceeded(AttendantError):
    def __init__(self, timeout_seconds: float) -> None:
        super().__init__(f"timeout_seconds: {timeout_seconds:g} s were not enough")
        self.timeout_seconds = timeout_seconds


class EngineError(AttendantError):
    pass


class OutOfMemory(EngineError):
    pass


class EngineStopped(EngineError):
    pass


def _rebuild(cls: type[AttendantError], args: tuple[Any, ...], state: dict[str, Any]) -> Any:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def shorten(value: object, max_characters: int = 60) -> str:
    """Return a value as JSON writes it, without its middle if it is long; bytes as their text."""
    start = value[: 2 * max_characters] if isinstance(value, str | bytes) else value
    if isinstance(start, bytes):
        start = start.decode(errors="replace")
    text = json.dumps(start, ensure_ascii=False, skipkeys=True, default=str)
    # What terminals and logs cannot show is escaped; lone surrogates could not be sent as UTF-8.
    text = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
    if len(text) <= max_characters:
        return text
    half = max_characters // 2
    return f"{text[:half]}…{text[-half:]}"
