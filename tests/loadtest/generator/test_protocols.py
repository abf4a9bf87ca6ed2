"""Every protocol asks in its own words, and reads good answers and bad ones."""

from typing import Any

import pytest

from loadtest.generator.protocols import (
    PROTOCOLS,
    AnswerError,
    Events,
    Output,
    count_usage,
    parse_event,
)
from loadtest.plan import WorkPlan


def body(**plan: Any) -> dict[str, Any]:
    made = WorkPlan(**plan)
    return PROTOCOLS[made.protocol].body("Hello.", made)


def test_translations_are_asked_for() -> None:
    plain = {"q": "Hello.", "format": "text", "source": "en", "target": "fr"}
    assert body() == plain
    assert body(max_tokens=9, model="m") == plain | {"max_new_tokens": 9, "model": "m"}
    deepl = {"text": ["Hello."], "source_lang": "EN", "target_lang": "FR"}
    assert body(protocol="deepl") == deepl


def test_completions_are_asked_for() -> None:
    usage = {"stream": True, "stream_options": {"include_usage": True}}
    plain = {"model": "m", "max_tokens": 64, "temperature": 0}
    completion = body(protocol="completions", model="m")
    assert completion == {**plain, **usage, "prompt": "Hello."}
    chat = body(protocol="chat", model="m", max_tokens=9, is_streamed=False)
    assert chat == {**plain, "max_tokens": 9, "messages": [{"role": "user", "content": "Hello."}]}


GOOD: dict[str, dict[str, Any]] = {
    "translate": {"translatedText": "Oui"},
    "deepl": {"translations": [{"text": "Oui", "detected_source_language": "EN"}]},
    "completions": {"choices": [{"text": "Oui"}], "usage": {"completion_tokens": 2}},
    "chat": {"choices": [{"message": {"content": "Oui"}}], "usage": {"completion_tokens": 2}},
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_answers_are_read(protocol: str) -> None:
    output = PROTOCOLS[protocol].output(GOOD[protocol])
    assert output.text == "Oui"
    assert output.output_tokens == (2 if protocol in ("completions", "chat") else None)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"translatedText": 5, "translations": [], "choices": []},
        {"translatedText": None, "translations": "no", "choices": "no"},
        {"translatedText": {}, "translations": [7], "choices": [7]},
        {"translatedText": [], "translations": [{}], "choices": [{"message": 3, "text": 3}]},
    ],
)
def test_nonsense_is_a_bad_answer(protocol: str, answer: dict[str, Any]) -> None:
    with pytest.raises(AnswerError) as caught:
        PROTOCOLS[protocol].output(answer)
    assert caught.value.kind == "bad answer"


@pytest.mark.parametrize("usage", [None, 7, [], {"completion_tokens": "many"}])
def test_usage_that_is_none_counts_nothing(usage: Any) -> None:
    output = Output()
    count_usage(output, {"usage": usage})
    assert output == Output()


def test_pieces_are_the_text_of_chunks() -> None:
    chat, completions = PROTOCOLS["chat"], PROTOCOLS["completions"]
    assert chat.piece({"choices": [{"delta": {"role": "assistant"}}]}) == ""
    assert chat.piece({"choices": [{"delta": {"content": "Oui"}}]}) == "Oui"
    for name in ("reasoning_content", "reasoning"):
        assert chat.piece({"choices": [{"delta": {name: "Hm", "content": None}}]}) == "Hm"
        assert chat.output({"choices": [{"message": {name: "Hm, ", "content": "oui"}}]}) == Output(
            "Hm, oui"
        )
    assert completions.piece({"choices": [{"text": "Oui"}]}) == "Oui"
    assert completions.piece({"choices": [], "usage": {}}) == ""


STREAM = b': ping\n\ndata: {"n": 1}\n\ndata:{"n": 2}\r\n\r\ndata: [DONE]\n\n'


@pytest.mark.parametrize("size", [1, 2, 7, 20, len(STREAM)])
def test_a_stream_is_the_same_however_it_is_cut(size: int) -> None:
    events = Events()
    chunks = [
        chunk
        for start in range(0, len(STREAM), size)
        for chunk in events.feed(STREAM[start : start + size])
    ]
    assert chunks == [{"n": 1}, {"n": 2}]
    assert events.is_done


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b'data: {"error": {"message": "stopped"}}\n', "error in stream"),
        (b"data: <html>\n", "bad answer"),
        (b"data: 7\n", "bad answer"),
    ],
)
def test_a_bad_stream_is_named(data: bytes, kind: str) -> None:
    with pytest.raises(AnswerError) as caught:
        list(Events().feed(data))
    assert caught.value.kind == kind


@pytest.mark.parametrize("data", [b"", b"\xff", b"[" * 100_000, b"[]"])
def test_what_is_no_json_object_is_a_bad_answer(data: bytes) -> None:
    with pytest.raises(AnswerError):
        parse_event(data)
