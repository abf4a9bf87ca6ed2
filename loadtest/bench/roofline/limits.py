"""Sets what the engine reaches beside what the machine could do: the share of the binding limit.

A step multiplies every row by all weights, and reads all weights once for all rows. Whichever takes
longer at the machine's peak is the limit: products for many rows, memory for few.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from loadtest.bench.roofline.breakdown import Breakdown
from loadtest.bench.roofline.costs import Cost
from loadtest.bench.roofline.peaks import Peaks

INT8_AIM = 0.75  # of the product peak, at 32 rows
AIM_BATCH = 32


@dataclass(frozen=True)
class Roofline:
    """Holds peaks, what a row and a source token cost, and what was measured per batch size.

    precision: of the products. encode: None for language models, whose prompts are left out, with
    the time that they take.
    """

    precision: str
    peaks: Peaks
    step: Cost
    encode: Cost | None
    breakdowns: Sequence[Breakdown]

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> "Roofline":
        return cls(
            found["precision"],
            Peaks(**found["peaks"]),
            Cost(**found["step"]),
            Cost(**found["encode"]) if found["encode"] else None,
            [Breakdown(**each) for each in found["breakdowns"]],
        )

    @property
    def product_peak(self) -> float:
        return self.peaks.fp32_hot if self.precision == "fp32" else self.peaks.int8_hot

    def limits(self, found: Breakdown) -> dict[str, float]:
        """Return the least seconds that products and memory allow."""
        products = found.num_tokens * self.step.multiply_adds
        read = found.num_steps * self.step.weight_bytes
        if self.encode is not None:
            products += found.num_read_tokens * self.encode.multiply_adds
        return {
            "products": products / self.product_peak,
            "memory": read / self.peaks.memory_bytes,
        }

    def seconds(self, found: Breakdown) -> float:
        return found.seconds - (0.0 if self.encode else found.reading)

    def shares(self, found: Breakdown) -> dict[str, float]:
        """Return which part of its time the engine would need at each limit."""
        limits = self.limits(found)
        return {name: limit / self.seconds(found) for name, limit in limits.items()}

    def binding(self, found: Breakdown) -> str:
        shares = self.shares(found)
        return max(shares, key=lambda name: shares[name])

    def as_json(self) -> dict[str, Any]:
        each = [
            {**asdict(found), "shares": self.shares(found), "binding": self.binding(found)}
            for found in self.breakdowns
        ]
        costs = {"step": asdict(self.step), "encode": asdict(self.encode) if self.encode else None}
        return {
            "precision": self.precision,
            "peaks": asdict(self.peaks),
            "costs": costs,
            "batches": each,
        }

    def as_markdown(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        peaks = self.peaks
        yield "| peak of all cores | hot | weights from memory |\n|---|---:|---:|"
        for name in ("int8", "fp32"):
            hot, cold = (getattr(peaks, f"{name}_{kind}") / 1e9 for kind in ("hot", "cold"))
            yield f"| {name} products, G multiply-adds/s | {hot:.0f} | {cold:.0f} |"
        yield f"| memory, read and written, GB/s | | {peaks.memory_bytes / 1e9:.1f} |\n"
        yield "| batch | limit that binds | share of it | of products | aim | host | reading |"
        yield "|---:|---|---:|---:|---:|---:|---:|"
        for found in self.breakdowns:
            yield self._row(found)
        yield "\nMore than 100 % of the memory's limit: the weights stay in a cache."

    def _row(self, found: Breakdown) -> str:
        shares, binding = self.shares(found), self.binding(found)
        has_aim = found.batch == AIM_BATCH and self.precision != "fp32"
        cells = [
            f"{found.batch} | {binding}",
            *(f"{share:.0%}" for share in (shares[binding], shares["products"])),
            f"{INT8_AIM:.0%}" if has_aim else "",
            *(f"{part / found.seconds:.1%}" for part in (found.host, found.reading)),
        ]
        return f"| {' | '.join(cells)} |"
