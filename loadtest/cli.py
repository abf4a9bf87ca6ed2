"""Holds `attendant loadtest URL`, which asks a server as N users and reports what they saw."""

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

SAMPLE = Path(__file__).with_name("sample.txt")
FILE = click.Path(path_type=Path, dir_okay=False)


class ServerUrl(click.ParamType):
    """Takes an address such as http://127.0.0.1:8000, with the path a server is mounted under."""

    name = "url"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            parts = urlsplit(value)
            is_good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            is_good = False
        if not is_good or parts.query or parts.fragment:
            self.fail(f"{value!r} is not an address such as http://127.0.0.1:8000", param, ctx)
        return value.rstrip("/") + "/"


POSITIVE = click.FloatRange(0, min_open=True)


@click.command(context_settings={"show_default": True})
@click.argument("url", type=ServerUrl())
@click.option("--endpoint", type=click.Choice(["translate", "completions"]), default="translate")
@click.option("--users", type=click.IntRange(1), default=32, help="Requests in flight.")
@click.option("--duration", type=POSITIVE, default=30.0, help="Seconds to measure for.")
@click.option("--requests", type=click.IntRange(1), help="Measure so many requests at most.")
@click.option("--warm-up", type=click.FloatRange(0), default=3.0, help="Seconds left out before.")
@click.option(
    "--input",
    type=FILE,
    default=SAMPLE,
    show_default="built-in sentences",
    help="Sentences or prompts, one a line.",
)
@click.option("--model", help="Model to ask; completions need one.")
@click.option("--source", default="en", help="Language to translate from.")
@click.option("--target", default="fr", help="Language to translate into.")
@click.option("--max-tokens", type=click.IntRange(1), default=64, help="Length of a completion.")
@click.option("--timeout", type=POSITIVE, default=60.0, help="Seconds a request may take.")
@click.option("--timeline", "timeline_path", type=FILE, help="Write raw timestamps to this file.")
@click.option("--json", "wants_json", is_flag=True, help="Report as JSON.")
def loadtest(timeline_path: Path | None, wants_json: bool, **options: Any) -> None:
    """Measure the server at URL in a closed loop: each user asks again once it is answered.

    Tokens are those the server generated: by the usage of streamed completions, or, for translate,
    by how far the server's attendant_tokens_total counter went while it was measured.
    """
    from loadtest.clients import AnswerError
    from loadtest.report import as_json, as_text
    from loadtest.run import Settings, measure
    from loadtest.summary import summarise

    settings = Settings(**options)
    if settings.endpoint == "completions" and settings.model is None:
        raise click.UsageError("completions need --model")
    try:
        timeline = asyncio.run(measure(settings))
        if timeline_path is not None:
            timeline.write(timeline_path)
    except AnswerError as error:
        raise click.ClickException(
            f"{settings.url} gave no answer to start with: {error}"
        ) from error
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    click.echo((as_json if wants_json else as_text)(timeline.run, summarise(timeline)))
