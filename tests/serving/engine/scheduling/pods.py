"""Pods with the scheduler's queues behind a proxy that chooses the one with fewest connections.

Time is simulated: each slot of a pod works on one sentence at a time.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count

from serving.engine.generation import Generation
from serving.engine.scheduling.fair_queue import JobQueues, JobSize
from serving.engine.scheduling.validation import RequestValidator
from serving.requests.request import GenerationRequest
from tests.serving.engine.toy import toy_bundle

_NUM_SLOTS = 8
_WORK_PER_SECOND = 100.0  # of a slot
_VALIDATOR = RequestValidator(toy_bundle().manifest, slots=64)


@dataclass(frozen=True)
class Client:
    """Connections of a key, each of which sends its next request when it has an answer."""

    key: str
    num_connections: int
    num_sentences: int


@dataclass(eq=False)
class Pod:
    queues: JobQueues = field(default_factory=lambda: JobQueues(_NUM_SLOTS))
    num_connections: int = 0
    num_free: int = _NUM_SLOTS

    def taken_work(self) -> Counter[str]:
        return self.queues.taken_work

    def charge(self, account: str, work: int) -> None:
        self.queues.charge(account, work)


def shares_of_work(
    clients: Sequence[Client],
    num_pods: int,
    seconds: float,
    report: Callable[[Sequence[Pod]], None] = lambda pods: None,
) -> dict[str, float]:
    """Return the part of each key of the work that was done in the second half of the time.

    report: is called every second.
    """
    pods, numbers, ids = [Pod() for _ in range(num_pods)], random.Random(1), count()
    events: list[tuple[float, int, Callable[[float], None]]] = []
    done: Counter[str] = Counter()
    num_open: Counter[str] = Counter()  # sentences of a request

    def at(time: float, work: Callable[[float], None]) -> None:
        heappush(events, (time, next(ids), work))

    def send(client: Client, now: float) -> None:
        least = min(pod.num_connections for pod in pods)
        pod = numbers.choice([pod for pod in pods if pod.num_connections == least])
        pod.num_connections += 1
        job = f"job {next(ids)}"
        num_open[job] = client.num_sentences
        generations = []
        for _ in range(client.num_sentences):
            source = (3,) * numbers.randint(5, 15)
            request = GenerationRequest(
                f"{next(ids)}", source, job_id=job, share=client.key, ignore_eos=True
            )
            generations.append(_VALIDATOR.accept(request, now))
        pod.queues.add(generations)
        fill(pod, now)

    def fill(pod: Pod, now: float) -> None:
        while pod.num_free and (generation := pod.queues.first(JobSize.COMMON)) is not None:
            pod.queues.remove(generation, is_next=True)
            pod.num_free -= 1
            end = now + generation.work / _WORK_PER_SECOND
            at(end, partial(finish, pod, generation))

    def finish(pod: Pod, generation: Generation, now: float) -> None:
        pod.queues.end(generation)
        pod.num_free += 1
        client = by_key[generation.request.share]
        if now > seconds / 2:
            done[client.key] += generation.work
        num_open[generation.job] -= 1
        if not num_open[generation.job]:
            pod.num_connections -= 1
            send(client, now)
        fill(pod, now)

    by_key = {client.key: client for client in clients}
    for client in clients:
        for _ in range(client.num_connections):
            at(numbers.random(), partial(send, client))
    for second in range(1, int(seconds)):
        at(second, lambda time: report(pods))
    while events and events[0][0] < seconds:
        time, _, work = heappop(events)
        work(time)
    return {key: done[key] / done.total() for key in by_key}
