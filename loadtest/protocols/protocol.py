"""Says what a protocol is to the load test: bodies out of items, and outputs out of answers.

How requests travel, and when, is the generator's to know.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from loadtest.plan import WorkPlan
from loadtest.work.items import Item
from loadtest.work.mix import DEFAULT

BAD_ANSWER = "bad answer"


class AnswerError(Exception):
    """Says why a request got no usable answer; `kind` groups errors of a sort in the report."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


@dataclass(slots=True)
class Output:
    """Holds what an answer brought, and the server's own count of tokens where it gives one."""

    text: str = ""
    output_tokens: int | None = None
    prompt_tokens: int | None = None


class ApiProtocol(ABC):
    """Speaks one protocol. The class attributes say what it can do.

    default_kind: what it is asked for where no mix is given.
    """

    path: ClassVar[str]
    default_kind: ClassVar[str] = DEFAULT
    can_stream: ClassVar[bool] = False
    needs_model: ClassVar[bool] = False
    knows_kinds: ClassVar[bool] = True
    translates: ClassVar[bool] = True

    @abstractmethod
    def body(self, item: Item, plan: WorkPlan) -> dict[str, Any]:
        """Return the body that asks for an item."""

    @abstractmethod
    def output(self, answer: dict[str, Any]) -> Output:
        """Read a whole answer. Raises AnswerError where it is none."""

    def piece(self, chunk: dict[str, Any]) -> str:
        """Return the text of a streamed chunk, which may be empty; it is where nothing streams."""
        return ""


def required_text(value: Any, name: str) -> str:
    """Return a text of an answer. Raises AnswerError where it is anything else."""
    if not isinstance(value, str):
        raise AnswerError(BAD_ANSWER, f"no {name} in the answer")
    return value


def optional_count(value: Any) -> int | None:
    return value if isinstance(value, int) else None
