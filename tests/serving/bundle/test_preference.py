"""Which of several models answers requests that name none."""

from dataclasses import replace
from typing import Any

import pytest

from serving.bundle.manifest import Manifest, Task
from serving.bundle.preference import in_order
from tests.serving.pipelines.fakes import manifest

BOTH = (("en",), ("fr",))


def scores(**chrf: float) -> dict[str, Any]:
    return {"scores": [{"origin": test, "chrf": value} for test, value in chrf.items()]}


def bits(value: float, size: int = 9) -> dict[str, Any]:
    return {"bits_per_byte": value, "documents": 1, "bytes": size}


def model(
    name: str, quality: dict[str, Any], languages: Any = BOTH, domain: str | None = None
) -> Manifest:
    source, target = languages
    return replace(
        manifest(Task.TRANSLATE, name),
        quality=quality,
        source_languages=source,
        target_languages=target,
        domain=domain,
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([("a", scores(x=50)), ("b", scores(x=60))], "ba"),
        ([("a", scores(x=60)), ("b", scores(x=60))], "ab"),
        ([("a", scores(x=50)), ("b", scores(x=60)), ("c", scores(x=55))], "bca"),
        ([("a", scores(x=50, y=90)), ("b", scores(x=60))], "ba"),  # x alone was taken by both
        ([("a", scores(x=50)), ("b", scores(y=60))], "ab"),
        ([("a", {}), ("b", scores(x=60))], "ab"),
        ([("a", {"scores": [{}]}), ("b", {"scores": 1})], "ab"),
        ([("a", bits(1.3)), ("b", bits(1.2)), ("c", bits(1.1, size=7))], "bac"),
    ],
)
def test_the_better_one_of_two_that_took_the_same_tests_comes_first(
    given: list[tuple[str, dict[str, Any]]], expected: str
) -> None:
    models = [model(name, quality) for name, quality in given]
    assert "".join(models[place].name for place in in_order(models)) == expected


def test_models_of_other_languages_are_not_compared() -> None:
    models = [model("a", scores(x=50)), model("b", scores(x=60), (("en",), ("de",)))]
    assert in_order(models) == [0, 1]


def test_the_default_comes_before_better_ones() -> None:
    models = [model(name, scores(x=value)) for name, value in (("a", 50), ("b", 60), ("c", 70))]
    assert in_order(models, default="a") == [0, 2, 1]


def test_models_for_general_text_come_before_those_of_a_domain() -> None:
    captions = model("captions", scores(x=90), domain="captions")
    general = model("general", {})
    other_pair = model("other-pair", scores(y=10), (("en",), ("pt",)))
    prose = manifest(Task.GENERATE, "prose")
    models = [prose, captions, general, other_pair]
    assert [models[place].name for place in in_order(models)] == [
        "prose",
        "general",
        "other-pair",
        "captions",
    ]


def test_a_shared_test_counts_more_than_the_domain() -> None:
    captions = model("captions", scores(x=90), domain="captions")
    general = model("general", scores(x=50))
    assert in_order([general, captions]) == [1, 0]


def test_a_model_of_a_domain_may_be_the_default() -> None:
    captions, general = model("captions", {}, domain="captions"), model("general", {})
    assert in_order([general, captions], default="captions") == [1, 0]
