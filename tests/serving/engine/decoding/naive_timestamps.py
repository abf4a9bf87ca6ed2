"""The rules of timestamps as plain loops, after the published algorithm: openai/whisper,
whisper/decoding.py, ApplyTimestampRules (Radford et al. 2022, section 4.5).
"""

import math

from serving.requests.parameters import TimestampRules


def allowed_scores(rules: TimestampRules, logits: list[float], sampled: list[int]) -> list[float]:
    """Return the logits of the next token; -inf for tokens that must not come.

    sampled: the tokens since the prompt and the forced ones.
    """
    scores = list(logits)
    vocabulary = range(len(scores))
    is_timestamp = [token >= rules.first_id for token in vocabulary]

    def ban(tokens: list[int]) -> None:
        for token in tokens:
            scores[token] = -math.inf

    ban([rules.no_timestamps_id])
    ended_with_timestamp = len(sampled) >= 1 and is_timestamp[sampled[-1]]
    had_timestamp_before = len(sampled) < 2 or is_timestamp[sampled[-2]]
    if ended_with_timestamp and had_timestamp_before:
        ban([token for token in vocabulary if is_timestamp[token]])
    if ended_with_timestamp and not had_timestamp_before:
        ban([token for token in vocabulary if token < rules.end_id])
    timestamps = [token for token in sampled if is_timestamp[token]]
    if timestamps:
        least = timestamps[-1]
        if not (ended_with_timestamp and not had_timestamp_before):
            least += 1
        ban([token for token in vocabulary if rules.first_id <= token < least])
    if not sampled:
        ban([token for token in vocabulary if not is_timestamp[token]])
        if rules.max_initial_index is not None:
            last = rules.first_id + rules.max_initial_index
            ban([token for token in vocabulary if token > last])
    of_timestamps = sum(math.exp(scores[token]) for token in vocabulary if is_timestamp[token])
    of_words = [math.exp(scores[token]) for token in vocabulary if not is_timestamp[token]]
    if of_timestamps > max(of_words):
        ban([token for token in vocabulary if not is_timestamp[token]])
    return scores


def assert_obeys(rules: TimestampRules, sampled: list[int]) -> None:
    """Check a whole transcript, without its end."""
    assert rules.no_timestamps_id not in sampled
    timestamps = [token for token in sampled if token >= rules.first_id]
    assert timestamps == sorted(timestamps)
    if sampled:
        assert sampled[0] >= rules.first_id
        if rules.max_initial_index is not None:
            assert sampled[0] <= rules.first_id + rules.max_initial_index
    runs: list[int] = []  # the numbers of timestamps side by side
    for token, before in zip(sampled, [-1, *sampled], strict=False):
        if token >= rules.first_id:
            runs = [*runs[:-1], runs[-1] + 1] if before >= rules.first_id else [*runs, 1]
    assert all(number == 2 for number in runs[1:-1])
