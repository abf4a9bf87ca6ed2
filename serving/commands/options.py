"""Options, input lines and progress bars that commands share."""

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from serving.bundle.folders import BUILD_FOLDER, bundle_folders, find_bundles
from serving.errors import RequestError
from serving.requests.parameters import NUM_BEAMS, TEMPERATURE

if TYPE_CHECKING:
    from serving.bundle.manifest import Manifest
    from serving.engine.config import EngineConfig
    from serving.pipelines.cards import ModelCard
    from serving.pipelines.decoding import Decoding, Structure
from collections.abc import Callable
from dataclasses import MISSING

from serving.requests.parameters import OPTIONS, Choices, Integers, Option

_BAR_DELAY_SECONDS = 2.0
DEFAULT_TEMPERATURE = 0.8  # of generated text


def model_option(*tasks: str, reads_pictures: bool = False, advice: str = "") -> "Decorator":
    """Add `--model`. Without it a command takes a bundle that does one of the tasks, and says
    which.

    reads_pictures: whether its source is a picture. advice: where a bundle is to be had.
    """

    def given_or_found(context: click.Context, option: click.Parameter, path: Path | None) -> Path:
        languages = context.params.get("source"), context.params.get("target")
        return path or find_bundle(tasks, languages, reads_pictures, advice)

    return click.option(
        "--model",
        type=click.Path(path_type=Path),
        callback=given_or_found,
        help=f"A bundle.  [default: of those in {BUILD_FOLDER} and of `attendant list` that can do"
        " this the one that a server would choose]",
    )


def find_bundle(
    tasks: Sequence[str],
    languages: tuple[str | None, str | None],
    reads_pictures: bool = False,
    advice: str = "",
    option: str = "--model",
) -> Path:
    """Return the bundle of `list_matching_bundles` that a server would choose, and say which.
    Raises UsageError if there is none.
    """
    from serving.bundle.preference import in_order

    manifests = list_matching_bundles(tasks, languages, reads_pictures)
    if not manifests:
        message = f"there is none in {BUILD_FOLDER} that can do this"
        raise click.UsageError(
            "; ".join(filter(None, (f"give {option} BUNDLE: {message}", advice)))
        )
    folder = list(manifests)[in_order(list(manifests.values()))[0]]
    click.echo(f"attendant: the model is {folder}", err=True)
    return folder


def list_matching_bundles(
    tasks: Sequence[str], languages: tuple[str | None, str | None], reads_pictures: bool = False
) -> dict[Path, "Manifest"]:
    """Return the bundles that do one of the tasks. languages: source and target, None is any."""
    from serving.bundle.opening import open_manifest
    from serving.errors import BundleError

    manifests = {}
    for path in find_bundles(bundle_folders()):
        with suppress(BundleError):
            manifest = open_manifest(path)
            fits = manifest.serves in tasks and (manifest.picture is not None) == reads_pictures
            if fits and _translates(manifest, *languages):
                manifests[path] = manifest
    return manifests


def _translates(manifest: "Manifest", source: str | None, target: str | None) -> bool:
    """Return whether a bundle has these languages; None stands for any."""
    from serving.text.languages import match_codes

    languages = (source, manifest.source_languages), (target, manifest.target_languages)
    return all(code is None or match_codes(code, supported) for code, supported in languages)


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
    if not card.source_languages:
        raise click.UsageError(f"model {card.name} does not translate")
    source = source or _only("--source", card.source_languages)
    language = card.source_language(source)
    return language, target or _only("--target", card.targets_of(language))


def completion_decoding(
    card: "ModelCard",
    options: Mapping[str, Any],
    num_completions: int = 1,
    structure: "Structure | None" = None,
    default_max_tokens: int | None = None,
) -> "Decoding":
    """Take what the options say, and the bundle's defaults for the rest.

    default_max_tokens: where neither says how long a text may be; None is as long as fits.
    """
    from serving.pipelines.decoding import MAX_NEW_TOKENS, resolve_decoding

    decoding_options, limit = given_options(options), options["max_tokens"]
    said = decoding_options if limit is None else {**decoding_options, "max_tokens": limit}
    if limit is None and MAX_NEW_TOKENS not in card.generation:
        limit = default_max_tokens
    decoding = resolve_decoding(
        said,
        card.generation,
        num_completions,
        DEFAULT_TEMPERATURE,
        structure=structure,
        max_new_tokens=limit,
    )
    if decoding.beam is None:
        refuse_idle(decoding_options, NUM_BEAMS, "--beam")
    return decoding


def _only(option: str, languages: tuple[str, ...]) -> str:
    if len(languages) > 1:
        raise click.UsageError(f"{option} must be one of {', '.join(languages)}")
    return languages[0]


def translation_decoding(
    card: "ModelCard", options: Mapping[str, Any], n_best: int = 1
) -> "Decoding":
    """Take what the options say, and the bundle's defaults for the rest."""
    from dataclasses import replace

    from serving.pipelines.decoding import resolve_decoding

    decoding_options = given_options(options)
    decoding = resolve_decoding(decoding_options, card.generation)
    beam = decoding.beam
    width = beam.num_beams if beam else 1
    if n_best > width:
        raise click.UsageError(f"--n-best {n_best} needs --beam {n_best} or more")
    if beam is None:
        refuse_idle(decoding_options, NUM_BEAMS, "--beam")
        if not decoding.sampling.temperature:
            refuse_idle(decoding_options, TEMPERATURE, "--temperature above 0")
    if n_best > 1 and beam is not None:  # of all: some may be the same text in other tokens
        beam = replace(beam, num_hypotheses=width)
    return replace(decoding, beam=beam)


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
    """On a terminal, after a while; with the remaining time if the input is a file."""
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


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def flag_of(option: Option) -> str:
    return "--beam" if option.name == NUM_BEAMS else f"--{option.name.replace('_', '-')}"


def decoding_options(
    is_recommended: bool = True, has_source: bool = True, **defaults: str
) -> Decorator:
    """Add the decoding options to a command; an option that is not given is None.

    is_recommended: options that are not given have the values that the bundle recommends.
    has_source: whether the command runs models with a source.
    defaults: texts for the defaults in `--help`, if they differ from the declared ones.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(OPTIONS.values()):
            if has_source or not option.needs_source:
                default = defaults.get(option.name) or _default_of(option, is_recommended)
                command = _click_option(option, default)(command)
        return command

    return decorate


def given_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the decoding options that were given, and remove them from all options of a
    command.
    """
    return {name: values[name] for name in OPTIONS if values.get(name) is not None}


def refuse_idle(options: Mapping[str, Any], need: str, message: str) -> None:
    """Raise a UsageError for the first given option that has this need."""
    for name in options:
        if OPTIONS[name].needs == need:
            raise click.UsageError(f"{flag_of(OPTIONS[name])} needs {message}")


def _default_of(option: Option, is_recommended: bool) -> str:
    if option.default is None:
        return ""
    default = "greedy" if option.default is MISSING else _word_of(option)
    return (
        f"the bundle's, else {default}" if is_recommended and option.is_recommendable else default
    )


def _word_of(option: Option) -> str:
    values = option.values
    if isinstance(values, Choices):
        return next(word for word, value in values.by_word.items() if value == option.default)
    return f"{option.default:g}"


def _click_option(option: Option, default: str) -> Decorator:
    kind = _click_type(option)
    notes = [str(option.values)] if kind in (click.INT, click.FLOAT) else []  # else click does
    notes += [f"default: {default}"] if default else []

    def value_of(context: Any, parameter: Any, word: Any) -> Any:
        values = option.values
        return values.by_word[word] if isinstance(values, Choices) and word else word

    return click.option(
        flag_of(option),
        option.name,
        type=kind,
        callback=value_of,
        help=f"{option.help}  [{'; '.join(notes)}]",
    )


def _click_type(option: Option) -> click.ParamType:
    values = option.values
    if isinstance(values, Choices):
        return click.Choice([*values.by_word])
    if isinstance(values, Integers):
        return click.IntRange(values.low, values.high) if option.name == NUM_BEAMS else click.INT
    return click.FLOAT


beam_option = _click_option(OPTIONS[NUM_BEAMS], _default_of(OPTIONS[NUM_BEAMS], True))
