"""Texts become requests as the model was trained on them: framed, paired, prompted, cut."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from models.conventions import Conventions
from serving.bundle.manifest import Activation, Manifest
from serving.errors import RequestError
from serving.pipelines.encoding.outputs import apply_activation, shorten_embeddings
from serving.pipelines.encoding.requests import EncodingRequests
from serving.pipelines.jobs import EncodeInput, EncodeJob, TextPair
from serving.pipelines.loading import ModelParts
from tests.encoders import CLS, ENCODER_CONVENTIONS, SEP, encoder_bundle


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> ModelParts:
    return ModelParts.open(encoder_bundle("embedder", tmp_path_factory.mktemp("b")))


def build(
    parts: ModelParts, *inputs: EncodeInput, **options: object
) -> list[tuple[tuple[int, ...], int | None]]:
    job = EncodeJob("job", inputs, **options)  # type: ignore[arg-type]
    requests = EncodingRequests(parts.bundle.manifest, parts.tokenizers.source).encodings(job)
    assert [request.request_id for request in requests] == [f"job-{n}" for n in range(len(inputs))]
    return [(request.source_ids or (), request.pair_start) for request in requests]


def ids(parts: ModelParts, text: str) -> tuple[int, ...]:
    return tuple(parts.tokenizers.source.encode(text))


def test_special_tokens_go_around_texts_and_not_around_ids(parts: ModelParts) -> None:
    a, b = ids(parts, "a dog"), ids(parts, "snow")
    assert build(parts, "a dog", (5, 6, 7), TextPair("a dog", "snow"), "") == [
        ((CLS, *a, SEP), None),
        ((5, 6, 7), None),
        ((CLS, *a, SEP, *b, SEP), len(a) + 2),
        ((CLS, SEP), None),
    ]


def test_a_prompt_comes_before_each_text(parts: ModelParts, tmp_path: Path) -> None:
    expected = (CLS, *ids(parts, "query: a dog"), SEP)
    assert build(parts, "a dog", prompt_name="query") == [(expected, None)]
    by_default = replace(ENCODER_CONVENTIONS, default_prompt="query")
    other = ModelParts.open(encoder_bundle("embedder", tmp_path, conventions=by_default))
    assert build(other, "a dog") == [(expected, None)]
    with pytest.raises(RequestError, match="it has passage, query"):
        build(parts, "a dog", prompt_name="title")


def test_what_is_too_long_is_refused_or_cut(parts: ModelParts) -> None:
    text = "0123456789" * 9
    with pytest.raises(RequestError, match="reads 64 tokens, and number 1 has 28 more"):
        build(parts, "short", text)
    assert build(parts, text, max_tokens=0) == [((CLS, *ids(parts, text[:62]), SEP), None)]
    assert build(parts, text, max_tokens=900) == build(parts, text, max_tokens=0)
    assert build(parts, text, max_tokens=5) == [((CLS, *ids(parts, "012"), SEP), None)]
    assert build(parts, tuple(range(9)), max_tokens=5) == [(tuple(range(5)), None)]
    with pytest.raises(RequestError, match="at least 3"):
        build(parts, text, max_tokens=2)


def test_pairs_are_cut_as_the_library_cuts_them(parts: ModelParts) -> None:
    library = Tokenizer.from_file(str(parts.bundle.tokenizer_path))
    a, b = ids(parts, "a")[0], ids(parts, "b")[0]
    for first, second, room in product((0, 1, 4, 5, 30), (0, 1, 4, 5, 31), (2, 5, 8, 9, 40)):
        library.enable_truncation(room, strategy="longest_first")
        expected = library.encode("a" * first, "b" * second, add_special_tokens=False).ids
        pair = TextPair("a" * first, "b" * second)
        [(pair_ids, start)] = build(parts, pair, max_tokens=room + 3)
        assert [pair_ids.count(a), pair_ids.count(b)] == [expected.count(a), expected.count(b)]
        assert start == pair_ids.count(a) + 2


def test_a_model_of_one_text_takes_no_pairs(tmp_path: Path) -> None:
    conventions = Conventions(source_prefix=(CLS,), source_suffix=(SEP,))
    parts = ModelParts.open(encoder_bundle("embedder", tmp_path, conventions=conventions))
    manifest: Manifest = parts.bundle.manifest
    assert manifest.encoder is not None and manifest.encoder.separator is None
    with pytest.raises(RequestError, match="one text, not two"):
        build(parts, TextPair("a", "b"))


LOGITS = np.array([[1.0, -2.0, 0.5], [900.0, -900.0, 0.0]], np.float32)


def test_scores_of_labels() -> None:
    softmax = apply_activation(LOGITS, Activation.SOFTMAX)
    exact = np.exp(LOGITS[0].astype(float)) / np.exp(LOGITS[0].astype(float)).sum()
    assert np.allclose(softmax[0], exact, atol=1e-7) and softmax[1].tolist() == [1, 0, 0]
    sigmoid = apply_activation(LOGITS, Activation.SIGMOID)
    assert np.allclose(sigmoid[0], 1 / (1 + np.exp(-LOGITS[0].astype(float))), atol=1e-7)
    assert sigmoid[1].tolist() == [1, 0, 0.5]
    assert apply_activation(LOGITS, Activation.NONE).tolist() == LOGITS.tolist()


def test_shorter_embeddings_have_length_1_where_the_whole_ones_do() -> None:
    whole = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    short = shorten_embeddings(whole, 5, is_normalised=True)
    assert short.shape == (3, 5) and np.allclose(np.linalg.norm(short, axis=1), 1)
    assert np.allclose(short / short[:, :1], whole[:, :5] / whole[:, :1], rtol=1e-5)
    assert shorten_embeddings(whole, 5, is_normalised=False).tolist() == whole[:, :5].tolist()
    assert shorten_embeddings(np.zeros((1, 8), np.float32), 4, True).tolist() == [[0] * 4]
    alone = shorten_embeddings(whole[1:2], 5, is_normalised=True)
    assert alone.tobytes() == short[1:2].tobytes()
    for wrong in (0, 9):
        with pytest.raises(RequestError, match="from 1 to 8"):
            shorten_embeddings(whole, wrong, is_normalised=True)
