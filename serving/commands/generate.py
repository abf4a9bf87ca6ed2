"""`attendant generate`: prompts in, completions out."""

import asyncio
import json
import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from serving.commands.common import (
    beam_option,
    device_option,
    end_quietly_with_the_reader,
    engine_config,
    lines_of,
    model_option,
)

if TYPE_CHECKING:
    from serving.engine.config import EngineConfig
    from serving.parameters import BeamParams, SamplingParams
    from serving.pipelines.catalog import Generator
    from serving.pipelines.decoding import Structure
    from serving.pipelines.jobs import CompletionDelta, CompletionJob

_DEFAULT_TEMPERATURE = 0.8
_SAMPLING = ("top_k", "top_p", "min_p", "typical_p", "seed")


@click.command()
@model_option
@click.option("--prompt", multiple=True, help="Text to go on from; may be given more than once.")
@click.option("--max-tokens", type=click.IntRange(1), default=128, show_default=True)
@click.option("--n", type=click.IntRange(1), default=1, show_default=True, help="Of each prompt.")
@click.option(
    "--temperature", type=float, help="0 is greedy.  [default: 0.8, under --beam always 0]"
)
@click.option("--top-p", type=float, default=1.0, show_default=True)
@click.option("--top-k", type=int, default=0, show_default=True, help="0 means all.")
@click.option("--min-p", type=float, default=0.0, show_default=True)
@click.option("--typical-p", type=float, default=1.0, show_default=True)
@click.option("--seed", type=int, help="The same seed gives the same text.")
@beam_option
@click.option("--repetition-penalty", type=float, default=1.0, show_default=True)
@click.option("--stop", multiple=True, help="Text that ends the completion.")
@click.option(
    "--json-schema",
    type=click.File("r", encoding="utf-8"),
    help="A file; the output is JSON that is valid under it.",
)
@click.option("--regex", help="The output matches it as a whole.")
@device_option
@click.argument("file", type=click.File("rb"), required=False)
def generate(
    model: Path, prompt: tuple[str, ...], device: str, file: BinaryIO | None, **options: Any
) -> None:
    """Complete prompts: from --prompt, or the lines of FILE or of standard input.

    One completion is written as it comes. Several are written as lines of JSON, in order.

    \b
    Examples:
      attendant generate --model build/bundles/llama-en-int8 --prompt 'It was a dark'
      attendant generate --model build/bundles/llama-en-int8 --temperature 0 prompts.txt > out.jsonl
      attendant generate --model build/bundles/llama-en-int8 --prompt 'It was' --beam 4 --n 4
      attendant generate --model build/bundles/llama-en-int8 --prompt 'He was' --regex ' [0-9]+ men'
    """
    from serving.text.checks import check_text

    end_quietly_with_the_reader()
    given = file or sys.stdin.buffer
    for text in prompt:
        check_text("--prompt", text, max_characters=sys.maxsize)
    prompts = prompt or tuple(line.rstrip("\r\n") for line in lines_of(given))
    job = _completion_job(prompts, options)
    asyncio.run(_generate(model, engine_config(device), job))


def _completion_job(prompts: tuple[str, ...], options: dict[str, Any]) -> "CompletionJob":
    from serving.parameters import ProcessorParams
    from serving.pipelines.decoding import Decoding
    from serving.pipelines.jobs import CompletionJob

    decoding = Decoding(
        sampling=_sampling(options),
        beam=_beam(options),
        processors=ProcessorParams(repetition_penalty=options["repetition_penalty"]),
        structure=_structure(options),
        max_new_tokens=options["max_tokens"],
    )
    stop = tuple(filter(None, options["stop"]))
    return CompletionJob("prompt", prompts, decoding, options["n"], stop, streams=True)


def _sampling(options: dict[str, Any]) -> "SamplingParams":
    from serving.parameters import SamplingParams

    default = 0.0 if options["beam"] else _DEFAULT_TEMPERATURE
    temperature = default if options["temperature"] is None else options["temperature"]
    return SamplingParams(temperature, **{name: options[name] for name in _SAMPLING})


def _beam(options: dict[str, Any]) -> "BeamParams | None":
    from serving.parameters import BeamParams

    width, n = options["beam"], options["n"]
    if width is None:
        return None
    if n > width:
        raise click.UsageError(f"--n {n} needs --beam {n} or more")
    return BeamParams(width, n)


def _structure(options: dict[str, Any]) -> "Structure | None":
    from serving.pipelines.decoding import Structure

    schema, regex = options["json_schema"], options["regex"]
    if schema is not None and regex is not None:
        raise click.UsageError("--json-schema cannot be combined with --regex")
    if schema is not None:
        return Structure("json", schema.read(), "--json-schema")
    return None if regex is None else Structure("regex", regex, "--regex")


async def _generate(path: Path, config: "EngineConfig", job: "CompletionJob") -> None:
    from serving.pipelines.offline import opened

    async with opened(path, config) as catalog:
        [card] = catalog.own_cards
        generator = await catalog.generator(card.name)
        if len(job.prompts) * job.num_choices == 1:
            await _write_as_it_comes(generator, job)
        else:
            await _write_json_lines(generator, job, window=8 * config.slots)


async def _write_as_it_comes(generator: "Generator", job: "CompletionJob") -> None:
    async with aclosing(generator.stream(job)) as deltas:
        async for delta in deltas:
            sys.stdout.write(delta.text)
            sys.stdout.flush()
    sys.stdout.write("\n")


def _line(prompt: Any, whole: "CompletionDelta") -> dict[str, Any]:
    score = {} if whole.score is None else {"score": whole.score}
    return {
        "prompt": prompt,
        "text": whole.text,
        "finish_reason": whole.finish_reason,
        **score,
    }


async def _write_json_lines(generator: "Generator", job: "CompletionJob", window: int) -> None:
    from dataclasses import replace

    from serving.pipelines.generation import collect
    from serving.pipelines.offline import in_order

    async def work(numbered: tuple[int, Any]) -> list[str]:
        number, prompt = numbered
        alone = replace(job, request_id=f"prompt-{number}", prompts=(prompt,))
        choices = await collect(generator.stream(alone), job.num_choices)
        return [json.dumps(_line(prompt, whole), ensure_ascii=False) for whole in choices]

    async for lines in in_order(work, enumerate(job.prompts), window):
        for line in lines:
            click.echo(line)
