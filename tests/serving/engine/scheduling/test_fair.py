"""Who comes next: shares by turns, jobs by turns within a share, in tokens of work."""

from hypothesis import given
from hypothesis import strategies as st

from serving.engine.generation import Generation
from serving.engine.scheduling.backlog import Backlog, Throughput
from serving.engine.scheduling.fair_queue import JobQueues, JobSize, WaitingQueue
from serving.engine.scheduling.validation import RequestValidator
from serving.requests.request import GenerationRequest
from tests.serving.engine.toy import toy_bundle

RULES = RequestValidator(toy_bundle().manifest, slots=64)


def sentence(
    name: str, job: str = "", share: str = "", length: int = 4, priority: int = 0
) -> Generation:
    request = GenerationRequest(
        name, (3,) * length, job_id=job, share=share, priority=priority, ignore_eos=True
    )
    return RULES.accept(request, now=0.0)


def job_of(number: int, name: str, share: str = "", length: int = 4) -> list[Generation]:
    return [sentence(f"{name}-{i}", name, share, length) for i in range(number)]


def take_jobs(queue: WaitingQueue, count: int) -> list[str]:
    """Take so many, and tell whose jobs they were."""
    jobs = []
    for _ in range(count):
        first = queue.first()
        assert first is not None
        queue.remove(first, is_next=True)
        jobs.append(first.request.job)
    return jobs


def queue_with(*jobs: list[Generation]) -> WaitingQueue:
    queue = WaitingQueue()
    for job in jobs:
        for generation in job:
            queue.add(generation)
    return queue


def test_a_job_of_one_sentence_passes_one_of_hundreds() -> None:
    queue = queue_with(job_of(300, "long"))
    take_jobs(queue, 50)
    queue.add(sentence("short"))
    assert "short" in take_jobs(queue, 2)


def test_the_long_job_goes_on_beside_any_number_of_short_ones() -> None:
    queue = queue_with(job_of(300, "long"))
    take_jobs(queue, 1)
    came = []
    for number in range(200):
        queue.add(sentence(f"short-{number}"))
        came += take_jobs(queue, 1)
    assert came.count("long") >= 10


def test_turns_are_taken_in_work() -> None:
    queue = queue_with(job_of(40, "wordy", length=12), job_of(120, "terse", length=4))
    jobs = take_jobs(queue, 80)
    ratio = jobs.count("terse") / jobs.count("wordy")
    assert 2 < ratio < 4


def test_shares_get_equal_parts_however_many_jobs_they_have() -> None:
    many = [sentence(f"m{i}", share="many") for i in range(100)]
    queue = queue_with(many, job_of(100, "one", share="few"))
    jobs = take_jobs(queue, 40)
    assert jobs.count("one") == 20


def test_a_share_that_was_idle_has_saved_up_nothing() -> None:
    queue = queue_with(job_of(100, "busy", share="busy"))
    take_jobs(queue, 50)
    for generation in job_of(50, "late", share="late"):
        queue.add(generation)
    assert 9 <= take_jobs(queue, 20).count("late") <= 11


def test_an_account_that_receives_more_elsewhere_waits_for_the_others() -> None:
    queue = queue_with(job_of(100, "both", share="a"), job_of(100, "here", share="b"))
    work = sentence("").work
    jobs = []
    for _ in range(20):  # one there, two here
        queue.charge("a", work)
        jobs += take_jobs(queue, 2)
    assert 9 <= jobs.count("both") <= 11


def test_however_much_an_account_receives_elsewhere_it_comes_again_soon() -> None:
    queue = queue_with(job_of(100, "both", share="a"), job_of(200, "here", share="b"))
    work = sentence("").work
    for _ in range(50):
        queue.charge("a", 5 * work)
        assert take_jobs(queue, 1) == ["here"]
    assert 8 <= take_jobs(queue, 66).count("both") <= 10


def test_an_account_that_does_not_wait_is_not_charged() -> None:
    queue = queue_with(job_of(20, "b", share="b"))
    queue.charge("a", 10**6)
    for generation in job_of(20, "a", share="a"):
        queue.add(generation)
    assert 9 <= take_jobs(queue, 20).count("a") <= 11


def test_the_urgent_come_first_whatever_their_share_has_had() -> None:
    queue = queue_with(job_of(10, "a", share="greedy"), job_of(10, "b", share="modest"))
    take_jobs(queue, 6)
    queue.add(sentence("urgent", share="greedy", priority=-1))
    assert take_jobs(queue, 1) == ["urgent"]


@given(
    st.lists(st.integers(1, 500), max_size=40),
    st.lists(st.integers(0, 39), max_size=30),
    st.integers(1, 600),
)
def test_what_comes_before_is_bounded_by_what_each_job_has(
    works: list[int], leavers: list[int], work_of_job: int
) -> None:
    backlog, waiting = Backlog(), dict(enumerate(works))
    for number, work in waiting.items():
        backlog.change(str(number), work)
    for number in leavers:
        if number in waiting:
            assert not backlog.change(str(number), -waiting.pop(number))
    exact = sum(min(work, work_of_job) for work in waiting.values())
    assert exact <= backlog.work_before(work_of_job) <= 2 * exact
    assert backlog.work == sum(waiting.values())
    assert backlog.num_jobs == len(waiting)


def test_before_a_small_job_comes_little_of_a_large_one() -> None:
    queue = queue_with(job_of(300, "long"))
    small = sentence("small").work
    assert queue.work_before(small, "", 0) == small
    assert queue.work_before(10**6, "", 0) == 300 * small
    assert queue.work_before(small, "", -1) == 0


def test_before_a_share_comes_as_much_of_another_as_it_waits_for_itself() -> None:
    queue = queue_with([sentence(f"m{i}", share="many") for i in range(100)])
    small = sentence("small").work
    assert queue.work_before(small, "few", 0) == small
    assert queue.work_before(small, "many", 0) == 100 * small


def test_the_rate_counts_only_time_in_which_somebody_waits() -> None:
    throughput = Throughput()
    for tenth in range(11):
        throughput.record(50, tenth / 10, others_wait=True)
    assert throughput.work_per_second is not None
    assert round(throughput.work_per_second) == 500
    throughput.record(50, 1.1, others_wait=False)
    throughput.record(50, 100.0, others_wait=True)
    assert round(throughput.work_per_second) == 500


def test_the_rate_follows_the_last_seconds() -> None:
    throughput = Throughput()
    for tenth in range(200):
        throughput.record(100 if tenth < 100 else 20, tenth / 10, others_wait=True)
    assert throughput.work_per_second is not None
    assert 200 <= throughput.work_per_second < 300


def test_small_jobs_have_a_lane_of_their_own_while_a_large_one_is_there() -> None:
    queues = JobQueues(max_small_rows=8)
    queues.has_engine_for_small_jobs = True
    queues.add([sentence("alone")])
    assert queues.first(JobSize.SMALL) is None
    assert queues.first(JobSize.COMMON) is not None
    large = job_of(9, "large")
    queues.add(large)
    small, first = queues.first(JobSize.SMALL), queues.first(JobSize.COMMON)
    assert small is not None and small.request.job == "alone"
    assert first is not None and first.request.job == "large"
    assert queues.weight(JobSize.SMALL) == 2 * queues.weight(JobSize.COMMON) == 2 / 3
    for generation in large:
        queues.remove(generation, is_next=False)
        queues.end(generation)
    assert queues.first(JobSize.COMMON) is small
    assert queues.weight(JobSize.COMMON) == 1


def test_without_an_engine_for_it_there_is_no_second_lane() -> None:
    queues = JobQueues(max_small_rows=8)
    queues.add([sentence("alone"), *job_of(9, "large")])
    assert not queues.large_jobs
