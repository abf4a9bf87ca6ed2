"""Makes options of commands of the declared options of decoding: `top_k` becomes `--top-k`.

Values are checked where parameters are made, so that a command says what HTTP says.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING
from typing import Any

import click

from serving.options import Choices, Integers, Option
from serving.parameters import NUM_BEAMS, OPTIONS

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def flag_of(option: Option) -> str:
    return "--beam" if option.name == NUM_BEAMS else f"--{option.name.replace('_', '-')}"


def decoding_options(
    is_recommended: bool = True, has_source: bool = True, **defaults: str
) -> Decorator:
    """Give a command the options of decoding, each None where it is not given.

    is_recommended: what is not given is as the bundle recommends.
    has_source: the command runs models with a source.
    defaults: words for what holds where an option is not given, else those of its declaration.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(OPTIONS.values()):
            if has_source or not option.needs_source:
                default = defaults.get(option.name) or _default_of(option, is_recommended)
                command = _click_option(option, default)(command)
        return command

    return decorate


def given_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Take what was given of the options of decoding from all options of a command."""
    return {name: values[name] for name in OPTIONS if values.get(name) is not None}


def refuse_idle(given: Mapping[str, Any], need: str, message: str) -> None:
    """Raise a UsageError for the first given option that has this need."""
    for name in given:
        if OPTIONS[name].needs == need:
            raise click.UsageError(f"{flag_of(OPTIONS[name])} needs {message}")


def _default_of(option: Option, is_recommended: bool) -> str:
    if option.default is None:
        return ""
    own = "greedy" if option.default is MISSING else _word_of(option)
    return f"the bundle's, else {own}" if is_recommended and option.is_recommendable else own


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
