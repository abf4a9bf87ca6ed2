"""Every error the server raises on purpose; `serving/api` turns each into its protocol's own shape.

AttendantError
├── ProblemsError       a file or folder that cannot be used: all its problems at once
│   ├── BundleError     a bundle that cannot be served
│   └── ConfigError     a server configuration that makes no sense
├── PartEnded           a part without which the server cannot go on: start it again
├── DeviceError         the device asked for is not there
├── StorageError        the folder of the server's state cannot be used
├── DocumentsFull       too many documents are kept: try again later
├── DocumentNotReady    a document that is not translated yet: try again later
├── RequestError        the caller's mistake: names the field and the value
│   ├── TooLarge        more than any request may carry
│   ├── Untokenizable   a text that the model's own tokenizer fails at
│   ├── WrongMediaType  a body, or an answer, in a format that is not spoken here
│   ├── ModelNotFound   no such model here
│   ├── DocumentNotFound  no such document, or not with this key
│   ├── GlossaryNotFound  no such glossary of this key
│   └── NoSuchObject    no such file or batch of this key
├── KeyRefused          no key that this server knows
├── RateExceeded        more than the key may ask for: try again later
├── QuotaExceeded       more than the key may use in all, or in a month
├── Overloaded          what waits would take too long: try again later
├── DeadlineExceeded    the request's own timeout passed before it was done
└── EngineError         our side failed while serving a request
    ├── OutOfMemory     the device's memory is full: try again later
    └── EngineStopped   the engine is shut down, or is shutting down
"""

from copy import copy
from typing import Any, Self


class AttendantError(Exception):
    """Root of the tree. Errors may cross to another process: they pickle by what they hold."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class ProblemsError(AttendantError):
    """Reports a file or folder that cannot be used; `problems` lists everything that is wrong with
    it.
    """

    def __init__(self, path: object, problems: list[str]) -> None:
        super().__init__(f"{path}: " + "; ".join(problems))
        self.path = str(path)
        self.problems = list(problems)


class BundleError(ProblemsError):
    """Reports a bundle that cannot be served."""


class ConfigError(ProblemsError):
    """Reports a server configuration that makes no sense."""


class PartEnded(AttendantError):
    """Says that a part of the server has ended without which it cannot go on."""


class DeviceError(AttendantError):
    """Says that the device asked for is not there, or cannot run this bundle."""


class StorageError(AttendantError):
    """Says that the folder in which the server keeps its state cannot be used."""

    def __init__(self, folder: object, reason: object) -> None:
        super().__init__(f"{folder}: {reason}; name another folder with --state-dir")


class RequestError(AttendantError):
    """Reports a request that cannot be served as asked."""

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


class TooLarge(RequestError):
    """More than any request may carry."""


class Untokenizable(RequestError):
    """Says that the model's own tokenizer fails at this text, if perhaps at no other."""


class ModelNotFound(RequestError):
    """Says that no model of that name is served here."""

    def __init__(self, model: object) -> None:
        super().__init__("model", model, "no such model")


class WrongMediaType(RequestError):
    """Says that a body, or the answer that is asked for, is in a format that is not spoken here."""


class DocumentNotFound(RequestError):
    """Says that there is no such document, or none for who shows this key."""

    def __init__(self, document: object) -> None:
        super().__init__("document_id", document, "no such document, or not with this key")


class DocumentNotReady(AttendantError):
    """Says that a document is not translated yet."""

    def __init__(self, seconds_remaining: float | None) -> None:
        super().__init__("the document is not translated yet; try again")
        self.retry_after_seconds = seconds_remaining or 1.0


class DocumentsFull(AttendantError):
    """Says that there is no room for another document until others were fetched or expire."""

    def __init__(self) -> None:
        super().__init__("there is no room for more documents; try again later")
        self.retry_after_seconds = 60.0


class GlossaryNotFound(RequestError):
    """Says that the key that was shown has no such glossary."""

    def __init__(self, glossary: object) -> None:
        super().__init__("glossary_id", glossary, "no such glossary")


class NoSuchObject(RequestError):
    """Says that the key that was shown has no such file or batch."""

    def __init__(self, field: str, value: object) -> None:
        super().__init__(field, value, "no such object")


class Overloaded(AttendantError):
    """Says that too much waits already.

    retry_after_seconds: when what waits now will be done. is_for_all: no request of
        ordinary size would have been taken.
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
    """Says that a request came without a key that this server knows."""

    def __init__(self, place: str) -> None:
        super().__init__(f"this server wants a key that it knows: {place}")


class RateExceeded(AttendantError):
    """Says that a key has asked for all that it may, for now."""

    def __init__(self, key: str, rate: str, retry_after_seconds: float) -> None:
        super().__init__(f"key {key} may ask for no more than {rate}; try again")
        self.retry_after_seconds = retry_after_seconds


class QuotaExceeded(AttendantError):
    """Says that a key has used up what it may in a month, or keeps as much as it may.

    retry_after_seconds: until a new month begins; None where waiting does not help.
    """

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class DeadlineExceeded(AttendantError):
    """Says that the request was not done within the time it gave itself."""

    def __init__(self, timeout_seconds: float) -> None:
        super().__init__(f"timeout_seconds: {timeout_seconds:g} s were not enough")
        self.timeout_seconds = timeout_seconds


class EngineError(AttendantError):
    """Says that the engine failed while it served a request."""


class OutOfMemory(EngineError):
    """Says that the device has no memory left for this; what runs already goes on."""


class EngineStopped(EngineError):
    """Says that the engine is shut down, or is shutting down."""


def _rebuild(cls: type[AttendantError], args: tuple[Any, ...], state: dict[str, Any]) -> Any:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def shorten(value: object, max_characters: int = 60) -> str:
    """`repr(value)`, cut in the middle so that a 100 kB value does not fill a log."""
    text = repr(value if not isinstance(value, str | bytes) else value[: 2 * max_characters])
    if len(text) <= max_characters:
        return text
    half = max_characters // 2
    return f"{text[:half]}…{text[-half:]}"
