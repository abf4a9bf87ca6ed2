"""What the commands share: options, lines of input, progress."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

import click

from serving.errors import RequestError
from serving.parameters import MAX_BEAMS

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
beam_option = click.option(
    "--beam",
    type=click.IntRange(1, MAX_BEAMS),
    help="Beam search of this width, e.g. 4.  [default: the bundle's, else greedy]",
)
device_option = click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True
)


def engine_config(device: Any) -> "EngineConfig":
    from serving.engine.config import EngineConfig

    return EngineConfig(device=device, max_waiting=None)


def languages_of(card: "ModelCard", source: str | None, target: str | None) -> tuple[str, str]:
    """Those that were not named are the bundle's, where it has but one."""
    source = source or _only("--source", card.source_languages)
    own = card.source_language(source)
    return own, target or _only("--target", card.targets_of(own))


def _only(option: str, languages: tuple[str, ...]) -> str:
    if len(languages) > 1:
        raise click.UsageError(f"{option} must be one of {', '.join(languages)}")
    return languages[0]


def translation_decoding(
    card: "ModelCard", beam: int | None, length_penalty: float | None = None, n_best: int = 1
) -> "Decoding":
    """What the options say, and the bundle's defaults for the rest."""
    from serving.pipelines.defaults import applicable, decoding_of

    options = {"num_beams": beam, "length_penalty": length_penalty}
    given = {name: value for name, value in options.items() if value is not None}
    values = {**applicable(card.generation, given, searches=beam is not None), **given}
    width = values.get("num_beams", 1)
    if n_best > width:
        raise click.UsageError(f"--n-best {n_best} needs --beam {n_best} or more")
    if length_penalty is not None and "num_beams" not in values:
        raise click.UsageError("--length-penalty needs --beam")
    # Some hypotheses may be the same text in other tokens: of all there are the best are taken.
    return decoding_of(values, num_hypotheses=1 if n_best == 1 else width)


def lines_of(file: BinaryIO) -> Iterator[str]:
    """Lines with their ends. Raises RequestError naming the line that is not plain text."""
    from serving.text.checks import check_text

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
    """One clear line each, and the exit code of a mistake."""
    for line in message.splitlines():
        click.echo(f"attendant: {line}", err=True)
    sys.exit(2)
