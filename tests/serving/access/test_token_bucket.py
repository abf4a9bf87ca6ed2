"""Token buckets, by a clock that stands still."""

from serving.access.token_bucket import Rate, TokenBucket, requests_rate, tokens_rate
from tests.serving.access.clock import Clock


def test_a_bucket_fills_steadily_and_no_further_than_it_holds() -> None:
    clock = Clock()
    bucket = TokenBucket(Rate(per_second=2, capacity=4), clock)
    bucket.take(4)
    assert bucket.seconds_until(1) == 0.5

    clock.now += 0.5
    assert bucket.seconds_until(1) == 0
    clock.now += 1000
    bucket.take(4)
    assert bucket.seconds_until(1) == 0.5


def test_what_was_taken_afterwards_has_to_be_waited_for() -> None:
    clock = Clock()
    bucket = TokenBucket(tokens_rate(60), clock)
    bucket.take(90)
    assert bucket.seconds_until(1) == 31


def test_rates_below_one_a_second_let_one_request_in() -> None:
    clock = Clock()
    bucket = TokenBucket(requests_rate(0.1), clock)
    assert bucket.seconds_until(1) == 0
    bucket.take(1)
    assert bucket.seconds_until(1) == 10
