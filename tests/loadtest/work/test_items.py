"""Items follow the plan's shares, and depend on nothing but the plan and their place."""

import json
from collections import Counter
from typing import Any

import pytest

from loadtest.errors import PlanError
from loadtest.generator.items import FAULTS, Item, Work, broken, num_beams, parse_mix
from loadtest.plan import Target, WorkPlan

MIX = {"greedy": 0.6, "beam4": 0.2, "sampled": 0.2}
TARGETS = (Target("translate", "a", MIX), Target("translate", "b", MIX))


def items(count: int = 2000, **plan: Any) -> list[Item]:
    work = Work(WorkPlan(**{"targets": TARGETS} | plan))
    return [work.item(place) for place in range(count)]


def share(found: list[Any], value: Any) -> float:
    return Counter(found)[value] / len(found)


def test_kinds_and_models_come_by_their_shares() -> None:
    found = items()
    for kind, expected in MIX.items():
        assert share([item.kind for item in found], kind) == pytest.approx(expected, abs=0.04)
    assert share([item.model for item in found], "a") == pytest.approx(0.5, abs=0.04)
    assert [item.id for item in found] == list(range(2000))


def test_some_are_hung_up_on_and_some_are_broken() -> None:
    found = items(disconnect=0.3, bad=0.1)
    assert share([item.fault is not None for item in found], True) == pytest.approx(0.1, abs=0.03)
    parts = [item.hang_up for item in found if item.hang_up is not None]
    assert len(parts) / len(found) == pytest.approx(0.27, abs=0.03)
    assert sum(parts) / len(parts) == pytest.approx(0.5, abs=0.05)
    assert {item.fault for item in found} == {None, *FAULTS}
    assert all((item.kind == "bad") == (item.fault is not None) for item in found)


def test_items_do_not_depend_on_who_makes_them() -> None:
    assert items(20, disconnect=0.5, bad=0.5) == items(40, disconnect=0.5, bad=0.5)[:20]
    assert items(20, seed=1) != items(20, seed=2)


def test_a_second_run_can_go_on_where_the_first_one_stopped() -> None:
    texts = [item.text for item in items(30)]
    assert [item.text for item in items(20, skipped_texts=10)] == texts[10:]


def test_groups_share_beginnings() -> None:
    found = items(200, shared_prefix_words=50, num_prefixes=3)
    beginnings = {item.beginning for item in found}
    assert len(beginnings) == 3
    assert len({item.whole_text for item in found}) == 200
    item = found[0]
    assert item.beginning is not None
    assert len(item.beginning.split()) == 50
    assert item.whole_text == f"{item.beginning} {item.text}"


def test_a_trace_brings_its_own_texts() -> None:
    work = Work(WorkPlan(targets=TARGETS), ["one", "two"])
    assert [work.item(place).text for place in range(3)] == ["one", "two", "one"]


def test_a_mix_is_read() -> None:
    assert parse_mix("greedy=0.6, beam4=0.2,sampled") == {
        "greedy": 0.6,
        "beam4": 0.2,
        "sampled": 1.0,
    }
    assert [num_beams(kind) for kind in ("beam12", "greedy")] == [12, None]


@pytest.mark.parametrize("text", ["", "greddy=1", "beam0=1", "greedy=0", "greedy=-1", "greedy=x"])
def test_a_mix_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(PlanError):
        parse_mix(text)


@pytest.mark.parametrize("field", ["q", "prompt", "messages", "text"])
def test_a_broken_body_has_one_fault(field: str) -> None:
    body = {"model": "m", field: "hello"}
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        json.loads(broken(body, "cut JSON"))
    assert json.loads(broken(body, "no text")) == {"model": "m"}
    assert json.loads(broken(body, "text of a wrong type")) == {"model": "m", field: 17}
