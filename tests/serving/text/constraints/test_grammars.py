"""Constraints: whatever is written under one is of its language, and says no more than it must."""

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from serving.errors import RequestError
from serving.requests.request import Constraint, Matcher
from serving.text.constraints.grammars import (
    MAX_GRAMMAR_CHARACTERS,
    Grammars,
)
from serving.text.tokenizer import Tokenizer
from tests.serving.text.tokenizers_for_tests import write_byte_tokenizer

STOP, VOCAB_SIZE = 2, 290
TEXTS = ('{"name": "Zoë", "age": 41}', "naïve café — 東京", "true false null 3.14", "red green")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer = Tokenizer(write_byte_tokenizer(folder / "tokenizer.json", TEXTS, VOCAB_SIZE))
    assert tokenizer.vocab_size == VOCAB_SIZE
    return tokenizer


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer) -> Grammars:
    return Grammars(tokenizer, (STOP,))


def allowed_of(matcher: Matcher, vocab_size: int = VOCAB_SIZE) -> set[int]:
    mask = np.ones(vocab_size, bool)
    matcher.fill_mask(mask)
    return set(np.flatnonzero(mask).tolist())


def read(matcher: Matcher, tokenizer: Tokenizer, text: str) -> bool:
    """Whether a text may come, by the longest tokens that may; the matcher has taken them."""
    rest = text.encode()
    while rest:
        tokens = {tokenizer.token_bytes(token_id): token_id for token_id in allowed_of(matcher)}
        fitting = [token for token in tokens if token and rest.startswith(token)]
        if not fitting:
            return False
        longest = max(fitting, key=len)
        matcher.accept(tokens[longest])
        rest = rest.removeprefix(longest)
    return True


def write(constraint: Constraint, tokenizer: Tokenizer, seed: int) -> str:
    """Return what a random model that tires writes, taking the best allowed token each time."""
    random = np.random.default_rng(seed)
    ends = [i for i in range(VOCAB_SIZE) if tokenizer.token_bytes(i) in (b'"', b"}", b"]", b"")]
    matcher, token_ids, mask = constraint.start(), list[int](), np.zeros(VOCAB_SIZE, bool)
    for step in range(2000):
        matcher.fill_mask(mask)
        logits = np.where(mask, random.gumbel(size=VOCAB_SIZE), -np.inf)
        logits[ends] += step / 10
        token_id = int(logits.argmax())
        assert mask[token_id], "dead end"
        matcher.accept(token_id)
        if token_id == STOP:
            return b"".join(map(tokenizer.token_bytes, token_ids)).decode()  # or fails
        token_ids.append(token_id)
    raise AssertionError("did not end")


SCHEMAS: list[dict[str, Any]] = [
    {"type": "string"},
    {"type": "string", "maxLength": 5},
    {"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$"},
    {"type": "integer", "minimum": -3, "maximum": 12},
    {"type": "number"},
    {"enum": ["red", "grün", None, 4]},
    {"const": {"a": [1, "é"]}},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4},
    {"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "integer"}}]},
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {
            "value": {"type": "integer"},
            "children": {"type": "array", "items": {"$ref": "#"}, "maxItems": 2},
        },
        "required": ["value"],
        "additionalProperties": False,
    },
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_json_under_a_schema_is_valid_under_it(
    grammars: Grammars, tokenizer: Tokenizer, schema: dict[str, Any]
) -> None:
    constraint = grammars.json_schema(schema)
    written = {write(constraint, tokenizer, seed) for seed in range(10)}
    for text in written:
        jsonschema.validate(json.loads(text), schema)
    assert len(written) > 1 or "const" in schema


def test_a_schema_may_be_given_as_text(grammars: Grammars, tokenizer: Tokenizer) -> None:
    as_text, as_such = (
        grammars.json_schema(schema) for schema in (json.dumps(SCHEMAS[9]), SCHEMAS[9])
    )
    for seed in range(3):
        assert write(as_text, tokenizer, seed) == write(as_such, tokenizer, seed)


def test_a_json_object_is_an_object(grammars: Grammars, tokenizer: Tokenizer) -> None:
    constraint = grammars.json_object()
    for seed in range(20):
        assert isinstance(json.loads(write(constraint, tokenizer, seed)), dict)


def test_json_has_at_most_single_blanks(grammars: Grammars, tokenizer: Tokenizer) -> None:
    constraint = grammars.json_object()
    value = {"a": [1, {"b": None}], "ö": "two  blanks\n"}
    for separators in ((", ", ": "), (",", ":")):
        text = json.dumps(value, ensure_ascii=False, separators=separators)
        assert read(constraint.start(), tokenizer, text)
    assert not read(constraint.start(), tokenizer, "{  ")
    assert not read(constraint.start(), tokenizer, "{\n")


@pytest.mark.parametrize(
    "pattern", ["[0-9]{3}-[a-f]+", "(日本|東京|é)+", "a?", ".{1,10}", r"\d{4}-\d\d", "«[^»]{0,9}»"]
)
def test_text_matches_a_regex_as_a_whole(
    grammars: Grammars, tokenizer: Tokenizer, pattern: str
) -> None:
    constraint = grammars.regex(pattern)
    for seed in range(10):
        assert re.fullmatch(pattern, write(constraint, tokenizer, seed))


@pytest.mark.parametrize(
    "texts",
    [
        ["red", "green", "greenish"],
        ["", "a"],
        ['say "hi"\n', "back\\slash", "tab\t"],
        ["東京", "東北", "Zoë"],
        ["same", "same", "other"],
        [f"choice {number}" for number in range(2000)],
    ],
    ids=lambda texts: repr(texts)[:30],
)
def test_every_choice_may_be_made_and_nothing_else(
    grammars: Grammars, tokenizer: Tokenizer, texts: list[str]
) -> None:
    constraint = grammars.choices(texts)
    for text in texts[:5]:
        matcher = constraint.start()
        assert read(matcher, tokenizer, text)
        assert STOP in allowed_of(matcher)
    assert {write(constraint, tokenizer, seed) for seed in range(10)} <= set(texts)


def test_a_lark_grammar_may_nest(grammars: Grammars, tokenizer: Tokenizer) -> None:
    constraint = grammars.lark('start: sum\nsum: term | sum "+" term\nterm: /[0-9]/ | "(" sum ")"')
    assert read(constraint.start(), tokenizer, "((1+2)+3)+4")
    matcher = constraint.start()
    assert read(matcher, tokenizer, "(1+2")
    assert STOP not in allowed_of(matcher)
    assert not read(matcher, tokenizer, "))")


# --- where it may end -----------------------------------------------------------------------------


def test_only_stops_come_when_the_text_must_end(grammars: Grammars, tokenizer: Tokenizer) -> None:
    matcher = grammars.choices(["red", "green"]).start()
    assert STOP not in allowed_of(matcher)
    assert read(matcher, tokenizer, "red")
    assert allowed_of(matcher) == {STOP}


def test_a_text_that_may_end_may_go_on(grammars: Grammars, tokenizer: Tokenizer) -> None:
    matcher = grammars.regex("a+").start()
    assert read(matcher, tokenizer, "aa")
    assert allowed_of(matcher) == {STOP, *tokenizer.encode("a")}


def test_a_requests_own_stops_come_where_the_text_is_whole_and_nowhere_else(
    grammars: Grammars, tokenizer: Tokenizer
) -> None:
    (stop_id,) = tokenizer.encode("b")
    matcher = grammars.regex("ab*", stop_ids=(stop_id,)).start()
    assert stop_id not in allowed_of(matcher)
    assert read(matcher, tokenizer, "a")
    assert allowed_of(matcher) == {STOP, stop_id}
    matcher.accept(stop_id)
    matcher = grammars.regex("ab?a", stop_ids=(stop_id,)).start()
    assert read(matcher, tokenizer, "a")
    assert stop_id not in allowed_of(matcher)


def test_a_vocabulary_may_be_padded(grammars: Grammars) -> None:
    matcher = grammars.regex(".*").start()
    assert allowed_of(matcher, 400) == allowed_of(matcher, VOCAB_SIZE)


def test_special_tokens_are_no_text(grammars: Grammars) -> None:
    assert {0, 1}.isdisjoint(allowed_of(grammars.regex(r"(?s:.*)").start()))


def test_a_token_that_was_not_allowed_is_a_dead_end(
    grammars: Grammars, tokenizer: Tokenizer
) -> None:
    matcher = grammars.choices(["red"]).start()
    matcher.accept(*tokenizer.encode("x"))
    assert allowed_of(matcher) == set()
    matcher.accept(*tokenizer.encode("r"))
    assert allowed_of(matcher) == set()
    assert allowed_of(matcher.fork()) == set()


def test_a_limit_reached_on_the_way_is_a_dead_end(grammars: Grammars, tokenizer: Tokenizer) -> None:
    constraint = grammars.lark("start: s\ns: s s | s s s | s s s s | s s s s s | /a/")
    matcher = constraint.start()
    assert not read(matcher, tokenizer, "a" * 200)
    assert allowed_of(matcher) == set()
    assert read(constraint.start(), tokenizer, "aaa")


# --- places ---------------------------------------------------------------------------------------


def test_matchers_of_one_constraint_are_apart(grammars: Grammars, tokenizer: Tokenizer) -> None:
    constraint = grammars.choices(["red", "green"])
    first, second = constraint.start(), constraint.start()
    assert read(first, tokenizer, "re")
    assert read(second, tokenizer, "green")
    assert read(first, tokenizer, "d")


def test_forks_are_apart(grammars: Grammars, tokenizer: Tokenizer) -> None:
    matcher = grammars.regex("x(aa|bb|cc)").start()
    assert read(matcher, tokenizer, "x")
    fork = matcher.fork()
    assert read(matcher, tokenizer, "a")
    assert read(fork, tokenizer, "b")
    assert allowed_of(matcher) == set(tokenizer.encode("a"))
    assert allowed_of(fork) == set(tokenizer.encode("b"))


def test_threads_may_compile_at_once(grammars: Grammars, tokenizer: Tokenizer) -> None:
    words = [f"word{number}" for number in range(32)]
    with ThreadPoolExecutor(4) as threads:
        constraints = list(threads.map(lambda word: grammars.choices([word]), words))
    assert [write(constraint, tokenizer, 0) for constraint in constraints] == words


# --- what does not compile ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("json_schema", "{", "is not JSON"),
        ("json_schema", "[1]", "must be a JSON object"),
        ("json_schema", '{"type": NaN}', "is not JSON"),
        ("json_schema", '"}], "x": [', "is not JSON"),
        ("json_schema", "[" * 60_000, "nests too deep"),
        ("json_schema", {"type": "strng"}, "Invalid type: strng"),
        ("json_schema", {"not": {}}, 'Unimplemented keys: ["not"]'),
        ("json_schema", {"type": "array", "uniqueItems": True}, "uniqueItems"),
        ("json_schema", {"not": {}, "x-guidance": {"lenient": True}}, "Unimplemented keys"),
        ("json_schema", {"type": "string", "pattern": "(?=a)b"}, "look-around"),
        ("json_schema", {"type": "integer", "minimum": 3, "maximum": 2}, "Unsatisfiable"),
        ("json_schema", {"$ref": "#"}, "no text can match it"),
        ("json_schema", {"$ref": "file:///etc/hostname"}, "not present in a registry"),
        ("json_schema", {"title": "\ud800"}, "does not compile"),
        ("json_schema", {"title": "x" * MAX_GRAMMAR_CHARACTERS}, "at most 65536 characters"),
        ("regex", "(a", "unclosed group"),
        ("regex", "(?<=a)b", "look-around"),
        ("regex", r"[^\s\S]", "no text can match it"),
        ("regex", "\ud800", "valid Unicode"),
        ("regex", "a" * (MAX_GRAMMAR_CHARACTERS + 1), "at most 65536 characters"),
        ("lark", "start: other", 'unknown name: "other"'),
        ("lark", "", "Empty grammar"),
        ("lark", "start: start", "no text can match it"),
        ("choices", [], "must not be empty"),
        ("choices", ["\ud800"], "valid Unicode"),
        ("choices", ["x" * 1000] * 70, "at most 65536 characters"),
    ],
    ids=lambda each: repr(each)[:30],
)
def test_what_does_not_compile_is_the_callers_mistake(
    grammars: Grammars, kind: str, value: Any, message: str
) -> None:
    with pytest.raises(RequestError, match=re.escape(message)) as raised:
        getattr(grammars, kind)(value, field="response_format")
    assert raised.value.field == "response_format"
    assert "\n" not in raised.value.message
    assert len(str(raised.value)) < 500


def test_a_schema_that_nests_without_end_is_the_callers_mistake(grammars: Grammars) -> None:
    schema: dict[str, Any] = {}
    for _ in range(5000):
        schema = {"items": schema}
    with pytest.raises(RequestError, match="nests too deep"):
        grammars.json_schema(schema)


def test_neither_torch_nor_transformers_is_loaded() -> None:
    module = "serving.text.constraints.grammars"
    code = f"import sys, {module};print({{'torch', 'transformers'}} & set(sys.modules))"
    root = Path(__file__).parents[4]
    process = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert process.stdout.strip() == "set()", process.stderr
