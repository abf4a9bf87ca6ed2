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
from serving.pipelines.translation.job import TranslationJob
from serving.pipelines.translation.language_frame import LanguageFrame
from serving.pipelines.translation.planning import Segment, TranslationPlan
from serving.pipelines.translation.requests import TranslationRequests
from serving.pipelines.translation.tokenizer_pair import TokenizerPair
from serving.request import FailedEvent, GenerationRequest, TokenEvent
from serving.text.shortlist import Shortlist
from serving.text.splitting import TextLayout


class Texts:
    """Greedy translation of many sentences at once."""

    def __init__(self, bundle: Bundle, config: EngineConfig) -> None:
        manifest = bundle.manifest
        self._languages = manifest.source_languages[0], manifest.target_languages[0]
        self._frame = LanguageFrame.between(manifest.tokens, *self._languages)
        self._tokenizers = TokenizerPair.load(bundle)
        shortlist = Shortlist.load(bundle)
        self._builder = TranslationRequests(manifest, self._tokenizers, shortlist)
        self._engine = Engine(bundle, config, excluded_ids=self._tokenizers.target.textless_ids)

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Raises what a request fails with."""
        engine = self._engine
        engine.submit(*self._requests(texts))
        ids: list[list[int]] = [[] for _ in texts]
        while engine.has_work:
            for event in engine.step():
                if isinstance(event, TokenEvent):
                    number = int(event.request_id.rpartition("-")[2])
                    ids[number].append(event.token_id)
                elif isinstance(event, FailedEvent):
                    raise event.error
        return [self._tokenizers.target.decode(each) for each in ids]

    def _requests(self, texts: Sequence[str]) -> list[GenerationRequest]:
        """Return a request for each text, however many sentences it has."""
        layouts = tuple(TextLayout((text,), ("", "")) for text in texts)
        segments = tuple(map(Segment, self._tokenizers.encode_sources(texts, self._frame)))
        plan = TranslationPlan(self._frame, layouts, segments)
        job = TranslationJob("text", tuple(texts), *self._languages)
        return self._builder.translations(job, plan)


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
