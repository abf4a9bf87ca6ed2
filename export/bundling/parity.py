"""Results of verification: how far the graphs of a bundle are from the torch module."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from serving.bundle.opening import read_dataclass


@dataclass(frozen=True)
class LogpError:
    """Absolute differences of log-probabilities (nats)."""

    largest: float
    mean: float
    num_positions: int

    def __str__(self) -> str:
        return f"largest {self.largest:.2g}, mean {self.mean:.2g} ({self.num_positions} positions)"


@dataclass(frozen=True)
class VectorError:
    """Absolute differences of a vector's numbers."""

    largest: float
    mean: float
    num_texts: int

    def __str__(self) -> str:
        return f"largest {self.largest:.2g}, mean {self.mean:.2g} ({self.num_texts} texts)"


@dataclass(frozen=True)
class VectorParity:
    """The result for a bundle that only encodes.

    name: of its output for a text.
    """

    name: str
    random_ids: VectorError
    test_text: VectorError | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def as_markdown(self) -> str:
        lines = [f"- {self.name} of random ids: {self.random_ids}"]
        if self.test_text:
            lines.append(f"- {self.name} of test text: {self.test_text}")
        return "\n".join(lines)


@dataclass(frozen=True)
class TextAgreement:
    """Greedy output against torch's: whole texts that are identical, and tokens in place."""

    num_texts: int
    num_identical: int
    num_tokens: int  # the longer output's, summed over texts
    num_same_tokens: int  # equal at the same position

    def __str__(self) -> str:
        return (
            f"{self.num_same_tokens / max(self.num_tokens, 1):.2%} of {self.num_tokens} tokens, "
            f"{self.num_identical} of {self.num_texts} texts identical"
        )


@dataclass(frozen=True)
class TestScores:
    """One measure before (torch) and after (this bundle)."""

    name: str
    before: float
    after: float


@dataclass(frozen=True)
class Parity:
    """Parts that need test text are absent without it. Errors are over whole vocabularies, but
    ``own_tokens`` of the test text's own tokens only. ``shortlisted``: of this bundle, with its
    whole vocabulary and with its shortlists.
    """

    random_ids: LogpError
    test_text: LogpError | None = None
    own_tokens: LogpError | None = None
    agreement: TextAgreement | None = None
    quality: tuple[TestScores, ...] = ()
    shortlisted: tuple[TestScores, ...] = ()
    signature: str | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def summary(self) -> str:
        """Return the errors of the test text's own tokens, else of random ids, in a few words."""
        error = self.own_tokens or self.random_ids
        text = f"log-probabilities differ by {error.mean:.2g} on average"
        if self.agreement is None:
            return text
        greedy = f"{self.agreement.num_identical} of {self.agreement.num_texts}"
        return f"{text}, {greedy} greedy texts are identical"

    def as_markdown(self) -> str:
        lines = [f"- log-probabilities on random ids: {self.random_ids}"]
        if self.test_text:
            lines.append(f"- log-probabilities on test text: {self.test_text}")
        if self.own_tokens:
            lines.append(f"- log-probabilities of the test text's own tokens: {self.own_tokens}")
        if self.agreement:
            lines.append(f"- greedy output: {self.agreement}")
        if self.quality:
            lines += ["", "| | torch | this bundle |", "|---|---:|---:|"]
            lines += [f"| {q.name} | {q.before:.2f} | {q.after:.2f} |" for q in self.quality]
        if self.shortlisted:
            lines += ["", "| this bundle | whole vocabulary | shortlists |", "|---|---:|---:|"]
            lines += [f"| {q.name} | {q.before:.2f} | {q.after:.2f} |" for q in self.shortlisted]
        if self.signature:
            lines += ["", f"Signature `{self.signature}`."]
        return "\n".join(lines)


AnyParity = Parity | VectorParity


@dataclass(frozen=True)
class RecordedParity:
    """The comparison of a checkpoint's weights with torch that was made when it was shipped.

    command: makes it again, with a precision in place of PRECISION.
    """

    command: str
    parity: Parity

    @classmethod
    def from_quality(cls, quality: Mapping[str, Any], precision: str) -> "RecordedParity | None":
        """Return what a checkpoint's quality.json has of a precision; None if that is nothing."""
        record = quality.get("parity", {})
        if precision not in record:
            return None
        problems: list[str] = []
        parity = read_dataclass(Parity, record[precision], problems)
        assert parity is not None, problems
        return cls(record["command"].replace("PRECISION", precision), parity)
