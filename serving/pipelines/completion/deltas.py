"""Joins the deltas of completions to whole completions."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import replace

from serving.pipelines.completion.job import CompletionDelta

Deltas = AsyncGenerator[CompletionDelta, None]


def joined(deltas: Sequence[CompletionDelta]) -> CompletionDelta:
    """Return the deltas of one completion as one."""
    return replace(
        deltas[-1],
        text="".join(delta.text for delta in deltas),
        tokens=tuple(token for delta in deltas for token in delta.tokens),
    )


async def collect(
    deltas: AsyncIterator[CompletionDelta], num_choices: int
) -> list[CompletionDelta]:
    """Return whole completions, each as one delta, in the order of their indices."""
    pieces: list[list[CompletionDelta]] = [[] for _ in range(num_choices)]
    async for delta in deltas:
        pieces[delta.index].append(delta)
    return [joined(choice) for choice in pieces]
