"""Dates and times of structured answers are those that exist."""

import datetime
import json
import re
from typing import Any

import pytest

from serving.text.constraints.grammars import Grammars
from serving.text.constraints.json_formats import with_valid_dates
from serving.text.tokenizer import Tokenizer
from serving.text.tool_calls import (
    ToolFunction,
    tool_call_grammar,
)
from tests.serving.api.openai.test_tools import follows
from tests.serving.pipelines.fakes import EOS, byte_tokenizer

DATE: Any = {"type": "string", "format": "date"}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return byte_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer) -> Grammars:
    return Grammars(tokenizer, (EOS,))


def is_date(text: str) -> bool:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def test_a_date_is_what_python_reads_as_one() -> None:
    schema = json.loads(with_valid_dates(json.dumps(DATE)))
    [added] = schema["allOf"]
    pattern = re.compile(added["pattern"])
    years = (0, 1, 4, 96, 99, 100, 104, 400, 999, 1000, 1600, 1700, 1900, 1999, 2000, 2023, 2024)
    for year in (*years, 2100, 2400, 4000, 9996, 9999):
        for month in range(14):
            for day in range(33):
                text = f"{year:04}-{month:02}-{day:02}"
                assert bool(pattern.fullmatch(text)) == is_date(text), text


TEXTS: list[tuple[str, str, bool]] = [
    ("date", "2024-02-29", True),
    ("date", "2023-02-29", False),
    ("date", "0000-10-30", False),
    ("date", "2024-13-01", False),
    ("date", "2024-00-01", False),
    ("date", "2024-04-31", False),
    ("date", "2024-1-1", False),
    ("date", "2024-01-01T00:00:00Z", False),
    ("time", "23:59:59Z", True),
    ("time", "12:30:00.25+05:30", True),
    ("time", "23:59:60Z", False),
    ("time", "24:00:00Z", False),
    ("time", "12:00:00", False),
    ("time", "12:00:00+25:00", False),
    ("date-time", "2024-02-29T12:00:00Z", True),
    ("date-time", "2000-02-29t12:00:00.123456-01:00", True),
    ("date-time", "1900-02-29T12:00:00Z", False),
    ("date-time", "0000-01-01T12:00:00Z", False),
    ("date-time", "2024-02-28T12:00:61Z", False),
    ("date-time", "2024-02-28 12:00:00Z", False),
]


@pytest.mark.parametrize(("kind", "text", "is_valid"), TEXTS)
def test_a_structured_answer_has_no_other(
    grammars: Grammars, tokenizer: Tokenizer, kind: str, text: str, is_valid: bool
) -> None:
    schema = {"type": "string", "format": kind}
    nested = {"type": "object", "properties": {"format": {"anyOf": [schema]}}}
    function = ToolFunction("book", {"type": "object", "properties": {"day": schema}})
    call = f'<tool_call>\n{{"name": "book", "arguments": {{"day": "{text}"}}}}\n</tool_call>'
    for constraint, answer in (
        (grammars.json_schema(schema), f'"{text}"'),
        (grammars.json_schema(nested), f'{{"format":"{text}"}}'),
        (grammars.lark(tool_call_grammar([function], True, False)), call),
    ):
        assert follows(constraint.start(), tokenizer, answer) == is_valid, answer


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        ({**DATE, "pattern": "^2"}, "2024-02-29", "1999-01-01"),
        ({**DATE, "allOf": [{"pattern": "^2"}]}, "2024-02-29", "1999-01-01"),
        ({"format": "date"}, "2024-02-29", "2023-02-29"),
        ({**DATE, "enum": ["0000-10-30"]}, "0000-10-30", "2024-02-29"),
        ({**DATE, "type": ["string", "null"]}, "2024-02-29", "2023-02-29"),
        ({**DATE, "default": {"format": "date"}}, "2024-02-29", "2023-02-29"),
        ({"$ref": "#/$defs/day", "$defs": {"day": DATE}}, "2024-02-29", "2023-02-29"),
    ],
)
def test_other_keywords_count_beside_the_format(
    grammars: Grammars, tokenizer: Tokenizer, schema: Any, valid: str, invalid: str
) -> None:
    constraint = grammars.json_schema(schema)

    assert follows(constraint.start(), tokenizer, f'"{valid}"')
    assert not follows(constraint.start(), tokenizer, f'"{invalid}"')


def test_values_that_look_like_schemas_stay() -> None:
    schema = {"const": {"format": "date"}, "properties": {"format": {"enum": [{"format": "time"}]}}}
    assert json.loads(with_valid_dates(json.dumps(schema))) == schema
