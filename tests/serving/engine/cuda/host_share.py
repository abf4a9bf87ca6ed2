"""Measures how much of a step a device is idle because of the host, over a device that computes
nothing and takes a fixed time for each step.

    python -m tests.serving.engine.cuda.host_share
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from serving.bundle.opening import Bundle
from serving.engine.arrays import Array
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.engine.runtime.graph import Graphs, Run
from serving.engine.states.store import Coarse
from serving.requests.parameters import SamplingParams
from serving.requests.request import GenerationRequest
from tests.serving.engine.cuda.lazy_device import LazyDevice, in_turns
from tests.serving.engine.toy import toy_bundle

ROWS, STEPS, STEP_SECONDS = 32, 300, 0.002
DRAWN = SamplingParams(temperature=0.8, top_p=0.95, seed=1)


class TimedDevice(LazyDevice):
    """Does everything at once, and is busy for as long as its runs take."""

    def __init__(self) -> None:
        super().__init__(haste=1.0)
        self.busy_until = 0.0

    def mark(self) -> Callable[[], None]:
        end = self.busy_until

        def wait() -> None:
            while (seconds_left := end - time.perf_counter()) > 0:
                time.sleep(seconds_left)

        return wait


@dataclass
class TimedGraph:
    device: TimedDevice
    seconds: float

    def bind(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        def run() -> None:
            begin = max(time.perf_counter(), self.device.busy_until)
            self.device.busy_until = begin + self.seconds

        return run


def roomy_bundle() -> Bundle:
    bundle = toy_bundle(has_encoder=False)
    limits = replace(bundle.manifest.limits, max_target_tokens=STEPS + 50)
    return replace(bundle, manifest=replace(bundle.manifest, limits=limits))


def idle_share(sampling: SamplingParams, is_ahead: bool) -> float:
    """Return how much of the time of a step, the median one, the device had nothing to do."""
    device = TimedDevice()
    step, select = TimedGraph(device, STEP_SECONDS), TimedGraph(device, 0.0)
    graphs = Graphs(step, None, device, grid=Coarse(), select=select)
    engine = Engine(roomy_bundle(), EngineConfig(slots=ROWS, threads=1), graphs)
    if not is_ahead:
        in_turns(engine)
    for row in range(ROWS):
        name = str(row)
        engine.submit(GenerationRequest(name, None, (3,), sampling, ignore_eos=True, logprobs=0))
    for _ in range(10):
        engine.step()
    ends = [time.perf_counter()]
    for _ in range(STEPS):
        engine.step()
        ends.append(time.perf_counter())
    return 1 - STEP_SECONDS / float(np.median(np.diff(ends)))


def main() -> None:
    for name, sampling in (("greedy", SamplingParams()), ("drawn", DRAWN)):
        for is_ahead in (False, True):
            share = idle_share(sampling, is_ahead)
            said = "ahead" if is_ahead else "in turns"
            print(f"{ROWS} rows, {1000 * STEP_SECONDS:.0f} ms a step, {name}, {said}: {share:.1%}")


if __name__ == "__main__":
    main()
