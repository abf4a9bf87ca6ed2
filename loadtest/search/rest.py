"""Waits until a server has nothing left to do, so that one probe's queue is not the next one's."""

import time
from urllib.error import URLError
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

WORK = ("attendant_waiting", "attendant_rows", "vllm:num_requests_running")
BLIND_SECONDS = 2.0
MOST_SECONDS = 60.0
PAUSE_SECONDS = 0.5
TIMEOUT_SECONDS = 5.0


def wait_for_rest(url: str) -> bool:
    """Return whether the server came to rest; one that does not say gets a fixed pause."""
    end = time.monotonic() + MOST_SECONDS
    while time.monotonic() < end:
        work = _work(url)
        if work is None:
            time.sleep(BLIND_SECONDS)
            return True
        if not work:
            return True
        time.sleep(PAUSE_SECONDS)
    return False


def _work(url: str) -> float | None:
    """Return how many requests the server has, by its metrics; None where those do not say."""
    try:
        with urlopen(f"{url}metrics", timeout=TIMEOUT_SECONDS) as response:
            text = response.read().decode()
        families = [f for f in text_string_to_metric_families(text) if f.name in WORK]
    except (URLError, OSError, ValueError):
        return None
    return sum(s.value for family in families for s in family.samples) if families else None
