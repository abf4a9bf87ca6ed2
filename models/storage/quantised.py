"""Holds what is known of a weight that its source has in int8, so that export need not guess."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Quantised:
    """Has levels of -127..127; the weight is level * scale.
    input_range: what is multiplied by the weight was clipped to +-input_range when the model was
    tuned for int8; None where each row has its own range.
    """

    scale: float
    input_range: float | None = None

    def of_input_times(self, factor: float) -> "Quantised":
        """Suit an input that is larger by `factor`, and a weight that is smaller by it."""
        wider = None if self.input_range is None else self.input_range * factor
        return Quantised(self.scale / factor, wider)
