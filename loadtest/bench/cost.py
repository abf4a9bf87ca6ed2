"""`attendant cost`: the cost of a token at each length."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from serving.engine.runtime.machine import available_cpus

SUFFIXES = (".pdf", ".png", ".svg")


@click.command(context_settings={"show_default": True})
@click.argument("bundles", nargs=-1, required=True, type=click.Path(path_type=Path))
# Below 32 there would be one length, and nothing could be said to rise.
@click.option("--longest", type=click.IntRange(32), default=1024, help="Where lengths end.")
@click.option("--rows", type=click.IntRange(1), default=1, help="Texts at a time.")
@click.option("--threads", type=click.IntRange(1), show_default="all CPUs")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="A picture: .png, .svg or .pdf."
)
@click.option("--json", "as_json", is_flag=True, help="Write all numbers as JSON.")
def cost(
    bundles: tuple[Path, ...],
    longest: int,
    rows: int,
    threads: int | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Tell what a token costs BUNDLES at each length: operations, bytes kept, tokens a second.

    Each model reads a source, or a prompt, of N tokens, and writes a token after N others, for N of
    16, 32 and so on. Operations are counted from the shapes that the graphs' operators run with, a
    multiply-add as two; times are medians.

    A token of a recurrent network costs the same at any length, and its state keeps its size: N·d²
    for N tokens. With attention the cost of a token and its state grow with N: N²·d for N tokens,
    but all of them are read at once. With -o a picture is drawn,
    which needs matplotlib: pip install 'attendant-server[plots]'

    \b
    Examples:
      attendant cost build/bundles/transformer-en-fr-int8
      attendant cost build/bundles/*-int8 -o cost.svg
      attendant cost build/bundles/llama-en-int8 --rows 8 --threads 1 --json
    """
    if output is not None and output.suffix.lower() not in SUFFIXES:
        message = f"-o {output}: the picture's name must end with one of {', '.join(SUFFIXES)}"
        raise click.UsageError(message)
    if output is not None:
        from loadtest.bench import length_report
    threads = threads or available_cpus()
    costs = _measure(bundles, longest, rows, threads)
    if as_json:
        click.echo(json.dumps([asdict(cost) for cost in costs]))
    else:
        from loadtest.bench.length_report import document_of
        from loadtest.reporting.document import as_text

        click.echo(as_text(document_of(costs, threads)))
    if output is not None:
        length_report.draw(costs, output)


def _measure(bundles: tuple[Path, ...], longest: int, rows: int, threads: int) -> list[Any]:
    from tqdm import tqdm

    from loadtest.bench.length_costs import length_costs, lengths_of
    from serving.bundle.opening import open_bundle

    opened = [open_bundle(path) for path in bundles]
    if names := [
        opened_bundle.manifest.name
        for opened_bundle in opened
        if opened_bundle.manifest.picture is not None
    ]:
        raise click.UsageError(f"{names[0]} reads pictures, which have one length")
    lengths = [lengths_of(bundle.manifest, longest) for bundle in opened]
    with tqdm(total=sum(map(len, lengths)), unit="length", leave=False, disable=None) as bar:
        return [
            length_costs(bundle, opened_bundle, rows, threads, bar.update)
            for bundle, opened_bundle in zip(opened, lengths, strict=True)
        ]
