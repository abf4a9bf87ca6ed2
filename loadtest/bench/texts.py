"""Text in, text out, by turns: the bare engine as engines of others are measured beside it
(`loadtest.peers`).

    python -m loadtest.bench.texts BUNDLE SENTENCES

For every line on standard input all sentences are translated, one request each, and a line of JSON
tells the seconds it took on the clock and in the processor.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import click

from serving.bundle.opening import Bundle, open_bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.pipelines.translation.framing import Framing
from serving.pipelines.translation.sides import Affixes, Sides
from serving.request import FailedEvent, GenerationRequest, TokenEvent
from serving.text.shortlist import Shortlist


class Texts:
    """Greedy translation of many sentences at once."""

    def __init__(self, bundle: Bundle, config: EngineConfig) -> None:
        manifest = bundle.manifest
        languages = manifest.source_languages[0], manifest.target_languages[0]
        self._affixes = Affixes.of(manifest.tokens, *languages)
        self._framing = Framing(manifest, Shortlist.of_bundle(bundle))
        self._sides = Sides.of_bundle(bundle)
        self._engine = Engine(bundle, config, excluded_ids=self._sides.target.textless_ids)

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Raises what a request fails with."""
        engine = self._engine
        engine.submit(*self._requests(texts))
        ids: list[list[int]] = [[] for _ in texts]
        while engine.has_work:
            for event in engine.step():
                if isinstance(event, TokenEvent):
                    ids[int(event.request_id)].append(event.token_id)
                elif isinstance(event, FailedEvent):
                    raise event.error
        return [self._sides.target.decode(each) for each in ids]

    def _requests(self, texts: Sequence[str]) -> list[GenerationRequest]:
        sources = map(self._affixes.around, self._sides.source.encode_batch(texts))
        requests = [
            GenerationRequest(str(number), ids, max_new_tokens=self._framing.max_new_tokens(ids))
            for number, ids in enumerate(sources)
        ]
        return [self._framing.completed(request, self._affixes) for request in requests]


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.argument("sentences", type=click.File(encoding="utf-8"))
@click.option("--threads", type=click.IntRange(1), default=1)
@click.option("--slots", type=click.IntRange(1), default=EngineConfig().slots)
@click.option("--output", type=click.Path(path_type=Path), help="Where the translations go.")
def main(bundle: Path, sentences: TextIO, threads: int, slots: int, output: Path | None) -> None:
    """Translate SENTENCES, one a line, with BUNDLE for every line on standard input."""
    texts = [line.strip() for line in sentences]
    config = EngineConfig(
        slots=slots, threads=threads, max_waiting=len(texts), encoder_cache_bytes=0
    )
    translator = Texts(open_bundle(bundle), config)
    for _ in sys.stdin:
        clock, processor = time.perf_counter(), time.process_time()
        translated = translator.translate(texts)
        seconds = {
            "seconds": time.perf_counter() - clock,
            "cpu_seconds": time.process_time() - processor,
        }
        if output is not None:
            output.write_text("\n".join(translated) + "\n", encoding="utf-8")
        click.echo(json.dumps(seconds))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
