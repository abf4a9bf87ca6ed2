"""`attendant generate` reads prompts and writes completions."""

import asyncio
import json
import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from serving.bundle.manifest import Task
from serving.commands.options import (
    DEFAULT_TEMPERATURE,
    completion_decoding,
    decoding_options,
    device_option,
    end_quietly_with_the_reader,
    engine_config,
    lines_of,
    model_option,
)
from serving.requests.parameters import NUM_BEAMS

if TYPE_CHECKING:
    from serving.engine.config import EngineConfig
    from serving.pipelines.cards import ModelCard
    from serving.pipelines.catalog import Model
    from serving.pipelines.decoding import Structure
    from serving.pipelines.jobs import CompletionDelta, CompletionJob
    from serving.text.chat_template import Chat

_DEFAULT_MAX_TOKENS = 128


@click.command()
@model_option("generate")
@click.option("--prompt", multiple=True, help="Text to go on from; may be given more than once.")
@click.option("--chat", is_flag=True, help="Each prompt is a user's message to be answered.")
@click.option("--system", help="With --chat: the system message.")
@click.option(
    "--max-tokens",
    type=click.IntRange(1),
    help="[default: the bundle's, else 128, with --chat as many as fit]",
)
@click.option("--n", type=click.IntRange(1), default=1, show_default=True, help="Of each prompt.")
@decoding_options(
    has_source=False,
    temperature=f"the bundle's, else {DEFAULT_TEMPERATURE}, under beam search always 0",
)
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

    With --chat they are messages, and the model's chat template makes prompts of them. What options
    do not say is as the bundle's makers recommend.

    One completion is written as it comes. Several are written as lines of JSON, in order.

    \b
    Examples:
      attendant generate --model build/bundles/llama-en-int8 --prompt 'It was a dark'
      attendant generate --model build/bundles/llama-en-int8 --temperature 0 prompts.txt > out.jsonl
      attendant generate --model build/bundles/llama-en-int8 --prompt 'It was' --beam 4 --n 4
      attendant generate --model build/bundles/llama-en-int8 --prompt 'He was' --regex ' [0-9]+ men'

    \b
    A question to a model that chats:
      attendant generate --model smollm2-135m-instruct --chat --prompt 'What is 2 and 2?'
      attendant generate --model smollm2-135m-instruct --chat --system 'Answer in verse.' asked.txt
    """
    from serving.text.checks import check_text

    end_quietly_with_the_reader()
    _check(options)
    for text in prompt:
        check_text("--prompt", text)
    lines = lines_of(file or sys.stdin.buffer)
    prompts = prompt or tuple(line.rstrip("\r\n") for line in lines)
    asyncio.run(_generate(model, engine_config(device), prompts, options))


def _check(options: dict[str, Any]) -> None:
    from serving.text.checks import check_text

    if options["system"] is not None:
        if not options["chat"]:
            raise click.UsageError("--system needs --chat")
        check_text("--system", options["system"])
    if options[NUM_BEAMS] is not None and options["n"] > options[NUM_BEAMS]:
        raise click.UsageError(f"--n {options['n']} needs --beam {options['n']} or more")


def _completion_job(
    card: "ModelCard", texts: tuple[str, ...], options: dict[str, Any]
) -> "CompletionJob":
    from serving.pipelines.jobs import CompletionJob

    prompts = tuple(_chat(text, options["system"]) for text in texts) if options["chat"] else texts
    stop = tuple(filter(None, options["stop"]))
    limit = None if options["chat"] else _DEFAULT_MAX_TOKENS
    decoding = completion_decoding(card, options, options["n"], _structure(options), limit)
    return CompletionJob("prompt", prompts, decoding, options["n"], stop, streams=True)


def _chat(text: str, system: str | None) -> "Chat":
    from serving.text.chat_template import Chat

    before = [] if system is None else [{"role": "system", "content": system}]
    return Chat((*before, {"role": "user", "content": text}))


def _structure(options: dict[str, Any]) -> "Structure | None":
    from serving.pipelines.decoding import Structure

    schema, regex = options["json_schema"], options["regex"]
    if schema is not None and regex is not None:
        raise click.UsageError("--json-schema cannot be combined with --regex")
    if schema is not None:
        return Structure("json", schema.read(), "--json-schema")
    return None if regex is None else Structure("regex", regex, "--regex")


async def _generate(
    path: Path, config: "EngineConfig", texts: tuple[str, ...], options: dict[str, Any]
) -> None:
    from serving.pipelines.loading import open_model

    async with open_model(path, config) as catalog:
        [card] = catalog.local_cards
        generator = await catalog.get_model(card.name, Task.GENERATE)
        job = _completion_job(card, texts, options)
        if len(job.prompts) * job.num_choices == 1:
            await _write_as_it_comes(generator, job)
        else:
            await _write_json_lines(generator, job, texts, window=8 * config.slots)


async def _write_as_it_comes(generator: "Model", job: "CompletionJob") -> None:
    async with aclosing(generator.stream(job)) as deltas:
        async for delta in deltas:
            sys.stdout.write(delta.text)
            sys.stdout.flush()
    sys.stdout.write("\n")


def _line(prompt: str, whole: "CompletionDelta") -> dict[str, Any]:
    score = {} if whole.score is None else {"score": whole.score}
    return {
        "prompt": prompt,
        "text": whole.text,
        "finish_reason": whole.finish_reason,
        **score,
    }


async def _write_json_lines(
    generator: "Model", job: "CompletionJob", texts: tuple[str, ...], window: int
) -> None:
    from dataclasses import replace

    from serving.pipelines.streams import in_order

    async def work(numbered: tuple[int, str]) -> list[str]:
        number, text = numbered
        alone = replace(
            job, request_id=f"prompt-{number}", prompts=job.prompts[number : number + 1]
        )
        choices = await generator.run(alone)
        return [json.dumps(_line(text, whole), ensure_ascii=False) for whole in choices]

    async for lines in in_order(work, enumerate(texts), window):
        for line in lines:
            click.echo(line)
