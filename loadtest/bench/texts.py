"""Translates a file again and again, by turns: a model as engines of others are measured beside it
(`loadtest.bench.against_slimt`), with all that stands between text and text, and no server.

    python -m loadtest.bench.texts BUNDLE SENTENCES

For every line on standard input all sentences are translated in one job, and a line of JSON reports
the seconds it took on the clock and in the processor.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import TextIO

import click

from serving.engine.config import EngineConfig
from serving.pipelines.offline import opened
from serving.pipelines.translation.job import TranslationJob


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.argument("sentences", type=click.File(encoding="utf-8"))
@click.option("--threads", type=click.IntRange(1), default=1)
@click.option("--slots", type=click.IntRange(1), default=EngineConfig().slots)
@click.option("--output", type=click.Path(path_type=Path), help="Where the translations go.")
def main(bundle: Path, sentences: TextIO, threads: int, slots: int, output: Path | None) -> None:
    """Translate SENTENCES, one a line, with BUNDLE for every line on standard input."""
    texts = tuple(line.strip() for line in sentences)
    config = EngineConfig(slots, threads, max_waiting=None, encoder_cache_bytes=0)
    asyncio.run(_take_turns(bundle, config, texts, output))


async def _take_turns(
    bundle: Path, config: EngineConfig, texts: tuple[str, ...], output: Path | None
) -> None:
    async with opened(bundle, config) as catalog:
        [card] = catalog.own_cards
        source = card.source_languages[0]
        job = TranslationJob("", texts, source, card.targets_of(source)[0])
        translator = await catalog.translator(card.name, job.source, job.target)
        for _ in sys.stdin:  # the event loop has nothing else to do
            clock, processor = time.perf_counter(), time.process_time()
            translation = await translator.translate(job)
            seconds = {
                "seconds": time.perf_counter() - clock,
                "cpu_seconds": time.process_time() - processor,
            }
            if output is not None:
                output.write_text("\n".join(translation.texts) + "\n", encoding="utf-8")
            click.echo(json.dumps(seconds))


if __name__ == "__main__":
    main()
