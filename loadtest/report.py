"""Writes a summary as text or as JSON, and shows a bar while a run goes on."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import Any

from tqdm import tqdm

from loadtest.summary import Distribution, Summary

BAR = "{desc} {percentage:3.0f}%|{bar}| {elapsed} {postfix}"


@contextmanager
def progress_bar() -> Iterator[Callable[[float, int], None]]:
    """Show a bar on a terminal's standard error; call it with the part done, and how many."""
    with tqdm(total=1.0, desc="warm-up", bar_format=BAR, disable=None) as bar:

        def show(done: float, exchanges: int) -> None:
            bar.set_description_str("measuring" if done else "warm-up", refresh=False)
            bar.set_postfix_str(f"{exchanges} answers", refresh=False)
            bar.update(done - bar.n)

        yield show


def as_json(run: dict[str, Any], summary: Summary) -> str:
    return json.dumps({"run": run, **asdict(summary)}, indent=2)


def as_text(run: dict[str, Any], summary: Summary) -> str:
    lines = [
        f"{run['endpoint']} at {run['url']}, {run['users']} users, {summary.seconds:.1f} s",
        f"answers      {summary.answers}, {summary.answers_per_second:.1f}/s",
    ]
    if summary.sentences_per_second:
        lines.append(f"sentences    {summary.sentences_per_second:.1f}/s")
    lines += [_tokens(summary), _errors(summary), "", _table(summary)]
    return "\n".join(lines)


def _tokens(summary: Summary) -> str:
    if summary.tokens is None:
        return "tokens       not counted: neither the answers nor the server's metrics say"
    rate = f"{summary.tokens:.0f}, {summary.tokens_per_second:.1f}/s"
    return f"tokens       {rate} (generated; {summary.tokens_counted_by})"


def _errors(summary: Summary) -> str:
    kinds = ", ".join(f"{kind}: {count}" for kind, count in summary.errors.items())
    return f"errors       {kinds or 'none'}"


def _table(summary: Summary) -> str:
    names = [field.name for field in fields(Distribution)]
    rows = [("latency", summary.latency_seconds)]
    if summary.time_to_first_token_seconds is not None:
        rows.append(("first token", summary.time_to_first_token_seconds))
    head = f"{'milliseconds':13}" + "".join(f"{name:>9}" for name in names)
    return "\n".join([head, *(_row(label, values) for label, values in rows if values)])


def _row(label: str, values: Distribution) -> str:
    return f"{label:13}" + "".join(f"{1000 * value:9.1f}" for value in asdict(values).values())
