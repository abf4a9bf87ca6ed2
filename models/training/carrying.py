"""Carries what a recurrent language model remembers from one batch into the next.

This is truncated back-propagation through time (Williams and Peng 1990): states go on from window
to window, gradients end where a window begins.
"""

from torch import Tensor

from models.batch import Batch, FollowingBatch
from models.contract.models import AnyModel
from models.layers.language import RecurrentLanguageModel, RecurrentState


class Carry:
    """Holds the state after the last batch, of all its rows; None: nothing has been read."""

    def __init__(self) -> None:
        self._state: RecurrentState | None = None

    def read(self, module: AnyModel, batch: Batch) -> Tensor:
        """Read a batch, of those that follow others after these: [batch, target, dim]."""
        if not isinstance(batch, FollowingBatch):
            hidden: Tensor = module(batch)
            return hidden
        assert isinstance(module, RecurrentLanguageModel)
        state = None if batch.begins else self._state
        before = module.empty_state() if state is None else state.to(batch.input_ids.device)
        hidden, after = module.read(batch.input_ids, before)
        self._state = after.each(Tensor.detach)
        return hidden

    def state_tensors(self) -> dict[str, Tensor]:
        """Name everything that a run needs to go on."""
        if self._state is None:
            return {}
        cells = {
            f"cells.{layer}.{part}": tensor
            for layer, parts in enumerate(self._state.cells)
            for part, tensor in enumerate(parts)
        }
        outputs = self._state.outputs
        return cells if outputs is None else {**cells, "outputs": outputs}

    def load_state_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Put back what `state_tensors` gave."""
        layers: dict[str, list[Tensor]] = {}
        for name in sorted(tensors.keys() - {"outputs"}, key=_numbers):
            layers.setdefault(name.split(".")[1], []).append(tensors[name])
        if tensors:
            cells = tuple(map(tuple, layers.values()))
            self._state = RecurrentState(cells, tensors.get("outputs"))


def _numbers(name: str) -> list[int]:
    """Find a layer and a part, of `cells.2.0`."""
    return [int(number) for number in name.split(".")[1:]]
