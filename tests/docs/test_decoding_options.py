"""HTTP, commands, bundles, checks and the table of options have what is declared of an option."""

import math
from typing import Any

import click
import pytest
from click.testing import CliRunner
from pydantic import BaseModel

from loadtest.bench.command import bench
from serving.api.libretranslate.translate import TranslateBody
from serving.api.openai.chat import ChatBody
from serving.api.openai.completion_body import CompletionBody
from serving.commands.generate import generate
from serving.commands.options import decoding_options, flag_of, given_options
from serving.commands.translate import translate
from serving.errors import RequestError
from serving.pipelines.decoding import Decoding, default_problems, resolve_decoding
from serving.requests.parameters import (
    OPTIONS,
    BeamParams,
    Choices,
    Integers,
    Numbers,
    Option,
    ProcessorParams,
    SamplingParams,
    list_options,
)
from tests.docs.decoding_table import table, table_that_stands

DECLARED = [pytest.param(option, id=option.name) for option in OPTIONS.values()]
NEEDED = {BeamParams: {"num_beams": 4}}


def make(option: Option, value: Any) -> Any:
    params = next(
        params
        for params in (SamplingParams, BeamParams, ProcessorParams)
        if option in list_options(params)
    )
    return params(**NEEDED.get(params, {}) | {option.name: value})  # type: ignore[arg-type]


def accepted_and_refused(option: Option) -> tuple[list[Any], list[Any]]:
    """List the ends, and what lies right beyond them."""
    values = option.values
    if isinstance(values, Choices):
        return [*values.by_word.values()], ["perhaps", None]
    if isinstance(values, Integers):
        return [values.low, values.high], [
            values.low - 1,
            values.high + 1,
            values.low + 0.5,
            "1",
            True,
        ]
    assert isinstance(values, Numbers)
    inside = [math.nextafter(values.low, math.inf), math.nextafter(values.high, -math.inf)]
    beyond = [math.nextafter(values.low, -math.inf), math.nextafter(values.high, math.inf)]
    ends = {values.low: values.is_low_open, values.high: False}
    inside += [end for end, is_open in ends.items() if not is_open]
    beyond += [end for end, is_open in ends.items() if is_open]
    return inside, [*beyond, math.nan, math.inf, "1", True]


@pytest.mark.parametrize("option", DECLARED)
def test_parameters_take_the_declared_values_and_no_others(option: Option) -> None:
    accepted, refused = accepted_and_refused(option)

    for value in accepted:
        assert getattr(make(option, value), option.name) == value
    for value in refused:
        with pytest.raises(RequestError) as caught:
            make(option, value)
        assert caught.value.field == option.name


@pytest.mark.parametrize("option", DECLARED)
@pytest.mark.parametrize("body", [TranslateBody, CompletionBody, ChatBody])
def test_bodies_describe_the_options(body: type[BaseModel], option: Option) -> None:
    fields = body.model_json_schema()["properties"]
    if option.needs_source and body is not TranslateBody:
        assert option.name not in fields
        return
    field = fields[option.name]
    assert field["description"].startswith(option.help)
    assert (option.needs or "") in field["description"]
    own = {"minimum": -1} if option.name == "top_k" else {}  # as vLLM's clients turn it off
    assert field.items() >= (option.values.schema | own).items()
    assert field["default"] in (option.default, None)


@pytest.mark.parametrize("option", DECLARED)
@pytest.mark.parametrize("command", [generate, translate, bench], ids=lambda each: each.name)
def test_commands_have_the_options(command: click.Command, option: Option) -> None:
    found = [each for each in command.params if each.name == option.name]
    if option.needs_source and command is generate:
        assert found == []
        return
    [parameter] = found
    assert isinstance(parameter, click.Option)
    assert parameter.opts == [flag_of(option)]
    assert (parameter.help or "").startswith(option.help)


@pytest.mark.parametrize("option", DECLARED)
def test_what_a_command_is_given_reaches_the_decoding(option: Option) -> None:
    made = []

    @click.command()
    @decoding_options()
    def command(**options: Any) -> None:
        made.append(resolve_decoding({"num_beams": 4} | given_options(options), {}))

    accepted, _ = accepted_and_refused(option)
    words = {str(value).lower(): value for value in accepted}
    for word in words:
        result = CliRunner().invoke(command, [f"{flag_of(option)}={word}"])
        assert result.exit_code == 0, result.output

    expected = [make(option, value) for value in words.values()]
    found = [each for decoding in made for each in parts(decoding)]
    assert [each for each in found if type(each) is type(expected[0])] == expected


def parts(decoding: Decoding) -> tuple[Any, ...]:
    return decoding.sampling, decoding.beam, decoding.processors


@pytest.mark.parametrize("option", DECLARED)
def test_bundles_may_recommend_what_is_declared_so(option: Option) -> None:
    accepted, refused = accepted_and_refused(option)

    found = [line for value in accepted for line in default_problems({option.name: value})]

    expected = [] if option.is_recommendable else [f"generation.{option.name}: unknown"]
    assert found == expected * len(accepted)
    assert all([*default_problems({option.name: value})] for value in refused)


@pytest.mark.parametrize("option", DECLARED)
def test_a_help_is_made_of_sentences(option: Option) -> None:
    assert option.help[0].isupper()
    assert option.help.endswith(".")
    assert "|" not in option.help, "it is a cell of a table"


def test_the_table_is_made_of_the_declarations() -> None:
    """After a change: `python -m tests.docs.decoding_table`."""
    assert table_that_stands() == table()
