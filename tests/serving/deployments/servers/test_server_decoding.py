"""Decoding asked of a real server, here and in another worker group, by the clients people have."""

import json
import math
from typing import Any

import httpx
import openai
import pytest

EN_FR = {"source": "en", "target": "fr"}
AGE = {
    "type": "object",
    "properties": {"age": {"enum": [1, 22, 333]}},
    "required": ["age"],
    "additionalProperties": False,
}


TRANSLATORS = pytest.mark.parametrize(
    "model", ["transformer-en-fr", "bahdanau-en-fr", "far-transformer"]
)
GENERATORS = pytest.mark.parametrize("model", ["llama-en", "far-llama"])


@TRANSLATORS
def test_alternatives_by_beam_search(client: httpx.Client, model: str) -> None:
    body = {"q": "A dog runs.", "alternatives": 3, "return_scores": True, "model": model, **EN_FR}

    answer = client.post("/translate", json=body).json()

    texts = [answer["translatedText"], *answer["alternatives"]]
    assert len({*texts}) == len(texts) == 4
    assert answer["scores"] == sorted(answer["scores"], reverse=True)


@TRANSLATORS
def test_interactive_translation(client: httpx.Client, model: str) -> None:
    body = {"q": "A dog runs.", "target_prefix": "Le", "model": model, "protect": False, **EN_FR}
    options = {"alternatives": 3, "alternatives_at_prefix": True}

    one = client.post("/translate", json=body).json()["translatedText"]
    many = client.post("/translate", json={**body, **options}).json()

    assert one == many["translatedText"]
    assert all(text.startswith("Le") for text in (one, *many["alternatives"]))
    assert len({one, *many["alternatives"]}) == 1 + len(many["alternatives"]) <= 4


@TRANSLATORS
def test_glossary_and_alignments(client: httpx.Client, model: str) -> None:
    body = {"q": "A dog runs.", "glossary": {"dog": "toutou"}, "alignments": True, "model": model}

    answer = client.post("/translate", json={**body, **EN_FR}).json()

    assert answer["finish_reasons"] in ("stop", "length", "constraint")
    is_whole = answer["finish_reasons"] == "stop"  # else the term may come later, or nowhere
    assert "toutou" in answer["translatedText"].lower() or not is_whole
    aligned = answer["alignments"]
    assert aligned["source"] == ["A", "dog", "runs."]
    for link in aligned["pharaoh"].split():
        source, target = map(int, link.split("-"))
        assert source < 3 and target < len(aligned["target"])


@TRANSLATORS
def test_scores_are_those_that_decoding_tells(client: httpx.Client, model: str) -> None:
    body = {"q": "A dog runs.", "model": model, **EN_FR}
    greedy = client.post("/translate", json={**body, "return_scores": True}).json()
    is_whole = greedy["finish_reasons"] == "stop"  # else its text may be longer than a model reads
    pair = {**body, "translations": [greedy["translatedText"] if is_whole else "Un", "Un chat."]}

    own, other = client.post("/score", json=pair).json()["scores"]

    if is_whole:
        assert own["mean_logprob"] == pytest.approx(greedy["scores"][0], abs=0.05)
    assert own["logprob"] > other["logprob"] or model == "far-transformer"
    assert all(token["logprob"] <= 0 for token in own["tokens"])


@GENERATORS
def test_structured_output(official: openai.OpenAI, model: str) -> None:
    completion = official.completions.create(
        model=model,
        prompt="Her age:",
        max_tokens=60,
        seed=1,
        extra_body={"response_format": {"type": "json_schema", "json_schema": {"schema": AGE}}},
    )

    [choice] = completion.choices
    assert choice.finish_reason == "stop"
    assert json.loads(choice.text)["age"] in (1, 22, 333)


@GENERATORS
def test_beam_search_streamed_is_whole(official: openai.OpenAI, model: str) -> None:
    asked: dict[str, Any] = {"model": model, "prompt": "She said", "max_tokens": 12, "n": 3}
    extra = {"use_beam_search": True, "best_of": 5}

    whole = official.completions.create(**asked, extra_body=extra)
    texts = ["", "", ""]
    for chunk in official.completions.create(**asked, stream=True, extra_body=extra):
        texts[chunk.choices[0].index] += chunk.choices[0].text

    assert [choice.text for choice in whole.choices] == texts
    assert len({*texts}) == 3


@GENERATORS
def test_scoring_a_text(official: openai.OpenAI, model: str) -> None:
    """Expect that what was generated greedily is scored as it was when it was generated."""
    generated = official.completions.create(
        model=model, prompt="It was", max_tokens=8, temperature=0, logprobs=1
    ).choices[0]
    assert generated.logprobs is not None and generated.logprobs.token_logprobs is not None

    scored = official.completions.create(
        model=model, prompt="It was" + generated.text, max_tokens=0, echo=True, logprobs=1
    ).choices[0]

    assert scored.text == "It was" + generated.text
    assert scored.logprobs is not None
    assert scored.logprobs.tokens is not None and scored.logprobs.token_logprobs is not None
    assert all(math.isfinite(logprob) for logprob in scored.logprobs.token_logprobs)
    if scored.logprobs.tokens[-8:] == generated.logprobs.tokens:  # text may be cut otherwise
        # A last bit that differs between many tokens at once and one may round to another int8.
        expected = pytest.approx(generated.logprobs.token_logprobs, abs=5e-3)
        assert scored.logprobs.token_logprobs[-8:] == expected


@GENERATORS
@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"num_beams": 4, "top_p": 0.5}, "top_p"),
        ({"num_beams": 2, "n": 3}, "n"),
        ({"guided_regex": "("}, "guided_regex"),
        ({"allowed_token_ids": [10**6]}, "allowed_token_ids"),
        ({"logit_bias": {"1000000": 1}}, "logit_bias"),
    ],
)
def test_what_is_refused_names_its_field(
    official: openai.OpenAI, model: str, extra: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        official.completions.create(model=model, prompt="a", max_tokens=5, extra_body=extra)

    assert caught.value.param == param


def test_a_deadline_is_kept(client: httpx.Client) -> None:
    body = {"q": "A dog runs. " * 200, "timeout_seconds": 0.01, **EN_FR}

    response = client.post("/translate", json=body)

    assert response.status_code == 504
    assert client.post("/translate", json={"q": "a", **EN_FR}).status_code == 200
