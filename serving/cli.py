"""The `attendant` command.

Commands of packages that serving does not know are found through the entry points of the group
`attendant.commands`. Heavy imports wait until a command runs, so that `--help` is quick.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import aclosing
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

import click

from serving.errors import AttendantError, ProblemsError, RequestError

if TYPE_CHECKING:
    from serving.config import ServerConfig
    from serving.engine.config import EngineConfig
    from serving.pipelines.catalog import Generator
    from serving.pipelines.jobs import CompletionJob

_EXTRAS = {
    "torch": "train",
    "sacrebleu": "train",
    "matplotlib": "train",
    "onnxruntime": "cpu] or attendant[gpu",
}
_BAR_DELAY_SECONDS = 2.0


class Commands(click.Group):
    """Commands of this module and of the entry points; errors become one clear line each."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        found = [entry.name for entry in entry_points(group="attendant.commands")]
        return sorted({*super().list_commands(ctx), *found})

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        own = super().get_command(ctx, name)
        if own is not None:
            return own
        for entry in entry_points(group="attendant.commands", name=name):
            try:
                command: click.Command = entry.load()
            except ModuleNotFoundError as error:
                return _unavailable(name, error)
            return command
        return None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ProblemsError as error:
            _fail("\n".join(f"{error.path}: {problem}" for problem in error.problems))
        except (AttendantError, OSError) as error:
            _fail(str(error))
        except ModuleNotFoundError as error:
            _fail(_missing(error))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="attendant")
def main() -> None:
    """Serve trained attention models over HTTP, or use them right here.

    \b
    A model goes from checkpoint to server in two steps:
      attendant export models/checkpoints/transformer-en-fr -o build/bundles/en-fr --precision int8
      attendant serve build/bundles/en-fr
    """


@main.command()
@click.argument("bundles", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A YAML file with host, port and groups, instead of bundles.",
)
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(1, 65535), help="Port to listen on.  [default: 8000]")
@click.option("--replicas", type=click.IntRange(1), help="Processes, each with all bundles.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="Where models run.")
def serve(bundles: tuple[Path, ...], config: Path | None, **flags: Any) -> None:
    """Serve BUNDLES over HTTP until interrupted.

    \b
    Examples:
      attendant serve build/bundles/transformer-en-fr-int8
      attendant serve build/bundles/* --host 0.0.0.0 --port 8080 --replicas 2
      attendant serve --config server.yaml

    \b
    Then, from another terminal:
      curl localhost:8000/translate -d q='A dog runs.' -d source=en -d target=fr

    \b
    A server.yaml for two groups of models:
      port: 8000
      groups:
        - {name: translation, bundles: [build/bundles/transformer-en-fr-int8], replicas: 2}
        - {name: prose, bundles: [build/bundles/llama-en-int8], cpus_per_replica: 2}
    """
    from serving.app import run
    from serving.deployments.checks import problems_of

    server_config = _server_config(bundles, config, flags)
    problems = problems_of(server_config)
    if problems:
        _fail("\n".join(problems))
    click.echo("Starting ...", err=True)
    run(server_config, lambda url: click.echo(f"Serving on {url} (Ctrl-C stops)", err=True))


def _server_config(
    bundles: tuple[Path, ...], path: Path | None, flags: dict[str, Any]
) -> "ServerConfig":
    from serving.config import parse_config, read_config

    given = {name: value for name, value in flags.items() if value is not None}
    server: dict[str, Any] = {name: given[name] for name in ("host", "port") if name in given}
    if path is not None:
        if bundles or given.keys() - server.keys():
            raise click.UsageError("--config says which bundles run where; give it alone")
        return read_config(path).model_copy(update=server)
    if not bundles:
        raise click.UsageError("give at least one BUNDLE, or --config FILE")
    group = {name: given[name] for name in ("replicas", "device") if name in given}
    return parse_config("attendant serve", {**server, "groups": [{**group, "bundles": bundles}]})


@main.command()
@click.option("--model", required=True, type=click.Path(path_type=Path), help="A bundle.")
@click.option("--source", help="Language of the input.  [default: the bundle's first]")
@click.option("--target", help="Language of the output.  [default: the bundle's first]")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.argument("file", type=click.File("rb"), default="-")
def translate(
    model: Path, source: str | None, target: str | None, device: str, file: BinaryIO
) -> None:
    """Translate FILE, or standard input, line by line.

    Lines keep their order and their blanks; many are translated at once.

    \b
    Examples:
      attendant translate --model build/bundles/transformer-en-fr-int8 < in.txt > out.txt
      echo 'A dog runs in the snow.' | attendant translate --model build/bundles/bahdanau-en-fr-int8
    """
    _end_quietly_with_the_reader()
    asyncio.run(_translate(model, _engine_config(device), source, target, file))


async def _translate(
    path: Path, config: "EngineConfig", source: str | None, target: str | None, file: BinaryIO
) -> None:
    from serving.pipelines.jobs import TranslationJob
    from serving.pipelines.offline import in_order, opened

    async with opened(path, config) as catalog:
        [card] = catalog.own_cards
        translator = await catalog.translator(card.name, source or "", target or "")
        from_language = source or card.source_languages[0]
        to_language = target or card.target_languages[0]

        async def work(numbered: tuple[int, str]) -> str:
            number, line = numbered
            job = TranslationJob(str(number), (line,), from_language, to_language)
            return (await translator.translate(job)).texts[0]

        translations = in_order(work, enumerate(_lines(file)), window=8 * config.slots)
        with _progress_bar(file) as bar:
            async for translation in translations:
                sys.stdout.write(translation)
                sys.stdout.flush()
                bar.update()


@main.command()
@click.option("--model", required=True, type=click.Path(path_type=Path), help="A bundle.")
@click.option("--prompt", multiple=True, help="Text to go on from; may be given more than once.")
@click.option("--max-tokens", type=click.IntRange(1), default=128, show_default=True)
@click.option("--temperature", type=float, default=0.8, show_default=True, help="0 is greedy.")
@click.option("--top-p", type=float, default=1.0, show_default=True)
@click.option("--top-k", type=int, default=0, show_default=True, help="0 means all.")
@click.option("--seed", type=int, help="The same seed gives the same text.")
@click.option("--stop", multiple=True, help="Text that ends the completion.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
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
    """
    from serving.text.checks import check_text

    _end_quietly_with_the_reader()
    given = file or sys.stdin.buffer
    for text in prompt:
        check_text("--prompt", text, max_characters=sys.maxsize)
    prompts = prompt or tuple(line.rstrip("\r\n") for line in _lines(given))
    job = _completion_job(prompts, options)
    asyncio.run(_generate(model, _engine_config(device), job))


def _completion_job(prompts: tuple[str, ...], options: dict[str, Any]) -> "CompletionJob":
    from serving.parameters import SamplingParams
    from serving.pipelines.jobs import CompletionJob

    names = ("temperature", "top_k", "top_p", "seed")
    sampling = SamplingParams(**{name: options[name] for name in names})
    return CompletionJob(
        "prompt",
        prompts,
        max_new_tokens=options["max_tokens"],
        sampling=sampling,
        stop=tuple(filter(None, options["stop"])),
    )


async def _generate(path: Path, config: "EngineConfig", job: "CompletionJob") -> None:
    from serving.pipelines.offline import opened

    async with opened(path, config) as catalog:
        [card] = catalog.own_cards
        generator = await catalog.generator(card.name)
        if len(job.prompts) == 1:
            await _write_as_it_comes(generator, job)
        else:
            await _write_json_lines(generator, job, window=8 * config.slots)


async def _write_as_it_comes(generator: "Generator", job: "CompletionJob") -> None:
    async with aclosing(generator.stream(job)) as deltas:
        async for delta in deltas:
            sys.stdout.write(delta.text)
            sys.stdout.flush()
    sys.stdout.write("\n")


async def _write_json_lines(generator: "Generator", job: "CompletionJob", window: int) -> None:
    from dataclasses import replace

    from serving.pipelines.generation import collect
    from serving.pipelines.offline import in_order

    async def work(numbered: tuple[int, Any]) -> str:
        number, prompt = numbered
        alone = replace(job, request_id=f"prompt-{number}", prompts=(prompt,))
        [whole] = await collect(generator.stream(alone), 1)
        answer = {"prompt": prompt, "text": whole.text, "finish_reason": whole.finish_reason}
        return json.dumps(answer, ensure_ascii=False)

    async for line in in_order(work, enumerate(job.prompts), window):
        click.echo(line)


def _engine_config(device: Any) -> "EngineConfig":
    from serving.engine.config import EngineConfig

    return EngineConfig(device=device, max_waiting=2**31)


def _lines(file: BinaryIO) -> Iterator[str]:
    """Lines with their ends. Raises RequestError naming the line that is not plain text."""
    from serving.text.checks import check_text

    for number, line in enumerate(file, start=1):
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            raise RequestError(f"line {number}", line, f"is not UTF-8: {error.reason}") from None
        check_text(f"line {number}", text, max_characters=sys.maxsize)
        yield text


def _progress_bar(file: BinaryIO) -> Any:
    """On a terminal, after a while; with an end in sight where the input is a file."""
    from tqdm import tqdm

    total = None
    if file.seekable():
        start = file.tell()
        total = sum(1 for _ in file)
        file.seek(start)
    return tqdm(total=total, unit=" lines", disable=None, delay=_BAR_DELAY_SECONDS)


def _end_quietly_with_the_reader() -> None:
    """`attendant translate ... | head` ends as other filters do."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def _unavailable(name: str, error: ModuleNotFoundError) -> click.Command:
    @click.command(name, short_help="(not installed)")
    def unavailable() -> None:
        _fail(_missing(error))

    return unavailable


def _missing(error: ModuleNotFoundError) -> str:
    package = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(package)
    if extra is None:
        raise error
    return f"this needs {package}, which is not installed: pip install 'attendant[{extra}]'"


def _fail(message: str) -> NoReturn:
    for line in message.splitlines():
        click.echo(f"attendant: {line}", err=True)
    sys.exit(2)


if __name__ == "__main__":
    main()
