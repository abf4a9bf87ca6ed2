"""A device for machines without one: it does what it is asked in that order, as late as it may or
as early, and what lies in its memory cannot be read but by copying it.

    device = LazyDevice(haste=0.0)
    graphs = replace(toy_graphs(), select=selecting(VOCAB_SIZE))
    engine = Engine(toy_bundle(), config, on_device(graphs, device))
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from export.graph.choice import select_graph
from serving.engine.arrays import Array
from serving.engine.cuda.device_runner import DeviceModelRunner
from serving.engine.cuda.memory import DevicePool
from serving.engine.engine import Engine
from serving.engine.runtime.graph import Graph, Graphs, OrtGraph, Run
from serving.engine.states.memory import CopyPool
from serving.engine.states.store import Coarse
from tests.export.sessions import session_of


class Remote(np.ndarray):
    """An array that numpy slices, but neither reads nor writes."""

    def refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError("the host reads or writes memory of the device")

    __array_ufunc__ = __array_function__ = refuse
    __setitem__ = __bool__ = __iter__ = __float__ = __int__ = refuse
    copy = tolist = item = astype = tobytes = refuse

    def __getitem__(self, index: Any) -> Any:
        part = super().__getitem__(index)
        return part if isinstance(part, Remote) else self.refuse()


class LazyDevice:
    """haste: how likely it is, whenever it is asked for something, to do all it was asked for."""

    def __init__(self, haste: float = 0.0, seed: int = 0) -> None:
        self._haste, self._random = haste, np.random.default_rng(seed)
        self._asked: deque[Callable[[], object]] = deque()
        self._num_asked = self._num_done = 0
        self.num_bytes_to_host = 0

    def zeros(self, shape: tuple[int, ...], dtype: str) -> Array:
        return np.zeros(shape, dtype).view(Remote)

    def pinned(self, shape: tuple[int, ...], dtype: str) -> Array:
        return np.zeros(shape, dtype)

    def copy(self, target: Array, source: Array) -> None:
        assert target.shape == source.shape
        if not isinstance(target, Remote):
            self.num_bytes_to_host += target.nbytes
        self.ask(partial(np.copyto, local(target), local(source), casting="no"))

    def clear(self, target: Array) -> None:
        self.ask(partial(local(target).fill, 0))

    def pool(self, num_bytes: int) -> CopyPool:
        return DevicePool(self.zeros((num_bytes,), "uint8"), self.copy)

    def mark(self) -> Callable[[], None]:
        return partial(self._do_until, self._num_asked)

    def ask(self, work: Callable[[], object]) -> None:
        self._asked.append(work)
        self._num_asked += 1
        if self._random.random() < self._haste:
            self._do_until(self._num_asked)

    def _do_until(self, number: int) -> None:
        while self._num_done < number:
            self._num_done += 1
            self._asked.popleft()()


def local(array: Array) -> Array:
    return array.view(np.ndarray)


@dataclass
class DeviceGraph:
    graph: Graph
    device: LazyDevice

    def bind(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        """Arrays of the host are read when the run is asked for, as CUDA copies unpinned ones."""
        on_host = {name: array for name, array in inputs.items() if not isinstance(array, Remote)}
        twins = {name: array.copy() for name, array in on_host.items()}
        output_arrays = {name: local(array) for name, array in outputs.items()}
        run = self.graph.bind(
            {name: local(array) for name, array in (inputs | twins).items()}, output_arrays
        )

        def ask() -> None:
            for name, array in on_host.items():
                self.device.ask(partial(np.copyto, twins[name], array.copy()))
            self.device.ask(run)

        return ask


def on_device(graphs: Graphs, device: LazyDevice) -> Graphs:
    encode = graphs.encode and DeviceGraph(graphs.encode, device)
    select = graphs.select and DeviceGraph(graphs.select, device)
    step = DeviceGraph(graphs.step, device)
    return Graphs(step, encode, device, grid=Coarse(), select=select)


class NeverAhead(DeviceModelRunner):
    @property
    def can_launch_ahead(self) -> bool:
        return False


def in_turns(engine: Engine) -> Engine:
    """The engine, which from now on awaits every run before the next."""
    engine._runner.__class__ = NeverAhead
    return engine


@cache
def selecting(vocab_size: int) -> Graph:
    """The graph that chooses tokens, on the CPU's kernels."""
    return OrtGraph(session_of(select_graph(vocab_size)))
