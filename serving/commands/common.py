"""What the commands share: options, lines of input, progress."""

import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

import click

from serving.commands.decoding import given_options, refuse_idle
from serving.errors import RequestError
from serving.parameters import NUM_BEAMS, TEMPERATURE

if TYPE_CHECKING:
    from serving.engine.config import EngineConfig
    from serving.pipelines.cards import ModelCard
    from serving.pipelines.decoding import Decoding

_BAR_DELAY_SECONDS = 2.0

model_option = click.option(
    "--model", required=True, type=click.Path(path_type=Path), help="A bundle."
)
source_option = click.option(
    "--source", help="Language of the input, e.g. en.  [default: the bundle's, if it has but one]"
)
target_option = click.option(
    "--target", help="Language of the output, e.g. fr.  [default: the bundle's, if it has but one]"
)
device_option = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    help="auto is cuda for a bundle made for it, where there is a GPU.  [default: auto]",
)


def engine_config(device: Any, **sizes: Any) -> "EngineConfig":
    from serving.engine.config import EngineConfig

    return EngineConfig(device=device, max_waiting=None, **sizes)


def languages_of(card: "ModelCard", source: str | None, target: str | None) -> tuple[str, str]:
    """Return source and target: where one was not named, the bundle's, if it has but one."""
    source = source or _only("--source", card.source_languages)
    own = card.source_language(source)
    return own, target or _only("--target", card.targets_of(own))


def _only(option: str, languages: tuple[str, ...]) -> str:
    if len(languages) > 1:
        raise click.UsageError(f"{option} must be one of {', '.join(languages)}")
    return languages[0]


def translation_decoding(
    card: "ModelCard", options: Mapping[str, Any], n_best: int = 1
) -> "Decoding":
    """Take what the options say, and the bundle's defaults for the rest."""
    from dataclasses import replace

    from serving.pipelines.decoding import resolve

    given = given_options(options)
    decoding = resolve(given, card.generation)
    beam = decoding.beam
    width = beam.num_beams if beam else 1
    if n_best > width:
        raise click.UsageError(f"--n-best {n_best} needs --beam {n_best} or more")
    if beam is None:
        refuse_idle(given, NUM_BEAMS, "--beam")
        if not decoding.sampling.temperature:
            refuse_idle(given, TEMPERATURE, "--temperature above 0")
    if n_best > 1 and beam is not None:  # of all: some may be the same text in other tokens
        beam = replace(beam, num_hypotheses=width)
    return replace(decoding, beam=beam)


def lines_of(file: BinaryIO) -> Iterator[str]:
    """Lines with their ends. Raises RequestError naming the line that is not plain text."""
    from serving.text.plain_text import check_text

    for number, line in enumerate(file, start=1):
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            raise RequestError(f"line {number}", line, f"is not UTF-8: {error.reason}") from None
        check_text(f"line {number}", text)
        yield text


def progress_bar(file: BinaryIO) -> Any:
    """On a terminal, after a while; with an end in sight where the input is a file."""
    from tqdm import tqdm

    total = None
    if file.seekable():
        start = file.tell()
        total = sum(1 for _ in file)
        file.seek(start)
    return tqdm(total=total, unit=" lines", disable=None, delay=_BAR_DELAY_SECONDS)


def end_quietly_with_the_reader() -> None:
    """`attendant translate ... | head` ends as other filters do."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def fail(message: str) -> NoReturn:
    """Write one clear line each; exit with the code of a mistake."""
    for line in message.splitlines():
        click.echo(f"attendant: {line}", err=True)
    sys.exit(2)
