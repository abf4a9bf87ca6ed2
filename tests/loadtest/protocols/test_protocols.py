"""Every protocol asks in its own words, and reads good answers and bad ones."""

from typing import Any

import pytest

from loadtest.generator.items import Item
from loadtest.generator.protocols import PROTOCOLS, AnswerError, Events, Output, count_usage, parsed
from loadtest.plan import WorkPlan

PLAN = WorkPlan(targets=(), max_tokens=9)


def body(
    protocol: str, kind: str = "default", plan: WorkPlan = PLAN, **changes: Any
) -> dict[str, Any]:
    item = Item(5, kind, protocol, changes.pop("model", None), "Hello.", **changes)
    return PROTOCOLS[protocol].body(item, plan)


def test_translations_are_asked_for() -> None:
    plain = {"q": "Hello.", "format": "text", "source": "en", "target": "fr"}
    assert body("translate", plan=WorkPlan(targets=())) == plain
    assert body("translate") == plain | {"max_new_tokens": 9}
    assert body("translate", "beam4", model="m") == body("translate") | {
        "model": "m",
        "num_beams": 4,
    }
    assert body("translate", "greedy")["num_beams"] == 1
    sampled = body("translate", "sampled")
    assert (sampled["temperature"], sampled["seed"]) == (1.0, 5)
    assert body("deepl") == {"text": ["Hello."], "source_lang": "EN", "target_lang": "FR"}


def test_completions_are_asked_for() -> None:
    usage = {"stream": True, "stream_options": {"include_usage": True}}
    assert body("completions", "greedy", model="m", beginning="Once.") == {
        "model": "m",
        "max_tokens": 9,
        "temperature": 0,
        "prompt": "Once. Hello.",
        **usage,
    }
    assert body("completions", plan=WorkPlan(targets=()))["max_tokens"] == 64
    assert body("chat", "beam4", model="m", beginning="Be brief.")["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello."},
    ]
    searched = body("completions", "beam4")
    assert (searched["use_beam_search"], searched["best_of"]) == (True, 4)


GOOD: dict[str, dict[str, Any]] = {
    "translate": {"translatedText": "Oui"},
    "deepl": {"translations": [{"text": "Oui", "detected_source_language": "EN"}]},
    "completions": {"choices": [{"text": "Oui"}], "usage": {"completion_tokens": 2}},
    "chat": {"choices": [{"message": {"content": "Oui"}}], "usage": {"prompt_tokens": 3}},
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_answers_are_read(protocol: str) -> None:
    output = PROTOCOLS[protocol].output(GOOD[protocol])
    assert output.text == "Oui"
    if protocol == "completions":
        assert output.output_tokens == 2
    if protocol == "chat":
        assert output.prompt_tokens == 3


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
        parsed(data)
