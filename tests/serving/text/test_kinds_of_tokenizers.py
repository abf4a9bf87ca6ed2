"""Any decoder is served: a stream is the whole text, and both are what the library writes."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from serving.errors import BundleError
from serving.text.alignment import (
    TokenizedText,
    find_words,
)
from serving.text.constraints.grammars import Grammars
from serving.text.constraints.prefix import PrefixConstraints
from serving.text.constraints.term_insertion import WordBorders
from serving.text.replacement import replace_unknown
from serving.text.spans import Span
from serving.text.stop_strings import StopStrings
from serving.text.tokenizer import (
    Detokenizer,
    Tokenizer,
)
from tests.serving.text.kinds_of_tokenizers import TEXTS, WRITERS, tokenizer_of
from tests.serving.text.tokenizers_for_tests import write_byte_tokenizer

KINDS = list(WRITERS)
WITH_SPACE_BEFORE = ["unigram", "Llama", "metaspace"]
WITH_SPACE_BEHIND = ["spaces behind", "subword-nmt", "plain words"]


def stream(tokenizer: Tokenizer, ids: list[int], begins_text: bool = True) -> str:
    detokenizer = Detokenizer(tokenizer, begins_text)
    return "".join([*map(detokenizer.push, ids), detokenizer.finish()])


@pytest.mark.parametrize("kind", KINDS)
def test_streamed_is_whole_whatever_the_ids(kind: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(kind, tmp_path)
    for seed in range(200):
        choose = random.Random(seed)
        ids = choose.choices(range(tokenizer.vocab_size), k=choose.randint(0, 12))
        for begins_text in (True, False):
            assert stream(tokenizer, ids, begins_text) == tokenizer.decode(ids, begins_text)


@pytest.mark.parametrize("kind", KINDS)
def test_texts_are_what_the_library_writes(kind: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(kind, tmp_path)
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for seed in range(200):
        choose = random.Random(seed)
        words = " ".join(TEXTS).split()
        ids = tokenizer.encode(" ".join(choose.choices(words, k=choose.randint(0, 9))))
        assert tokenizer.decode(ids) == library.decode(ids)
        assert tokenizer.decode([0, *ids, 1]) == library.decode([0, *ids, 1])


@pytest.mark.parametrize("kind", KINDS)
def test_spans_are_of_the_characters_that_a_token_was_made_of(kind: str, tmp_path: Path) -> None:
    tokenizer, text = tokenizer_of(kind, tmp_path), " ".join(TEXTS)
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    _, spans = tokenizer.encode_with_spans(text)
    assert spans == library.encode(text, add_special_tokens=False).offsets
    for text in ("dog</s>black </s>dog", "", "ﬁ½ dog ＡＢ e\u0301té \u3000dog ｶﾞ"):
        ids, spans = tokenizer.encode_with_spans(text)
        assert ids == tokenizer.encode(text) and len(ids) == len(spans)
        for start in (i for i, _ in enumerate(text) if text.startswith("dog", i)):
            touched = [(a, b) for a, b in spans if a < start + 3 and b > start]
            assert touched and max(b for _, b in touched) >= start + 3


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "word pieces"])
def test_ids_that_no_text_has_are_written_as_the_library_does(kind: str, tmp_path: Path) -> None:
    """But for bytes that are no UTF-8, which it counts in its own way, and a text that begins with
    a part of a word ("##er"), whose sign it would leave there.
    """
    tokenizer = tokenizer_of(kind, tmp_path)
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for seed in range(300):
        choose = random.Random(seed)
        ids = choose.choices(range(tokenizer.vocab_size), k=choose.randint(0, 6))
        if "\ufffd" not in (text := tokenizer.decode(ids)):
            assert library.decode(ids) == text


@pytest.mark.parametrize("kind", KINDS)
def test_only_byte_level_tokenizers_give_every_text_back(kind: str, tmp_path: Path) -> None:
    assert tokenizer_of(kind, tmp_path).is_lossless == (kind == "byte-level")


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_that_goes_on(kind: str, tmp_path: Path) -> None:
    """Its tokens after those of what stands before it spell both."""
    tokenizer = tokenizer_of(kind, tmp_path)

    before, after = tokenizer.encode("the"), tokenizer.encode_inside(" dog")

    assert tokenizer.decode([*before, *after]) == "the dog"
    assert tokenizer.decode(after, begins_text=False) == " dog"


@pytest.mark.parametrize("kind", ["unigram", "Llama", "Gemma", "metaspace", "byte-level"])
def test_a_word_that_goes_on_has_no_space(kind: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(kind, tmp_path)
    ids = tokenizer.encode_inside("chien")
    assert tokenizer.decode([*tokenizer.encode("("), *ids]) == "(chien"
    assert tokenizer.decode(tokenizer.encode_inside(" chien"), begins_text=False) == " chien"


@pytest.mark.parametrize("kind", WITH_SPACE_BEFORE)
def test_the_space_before_a_text_is_dropped_once_it_begins(kind: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(kind, tmp_path)
    ids = tokenizer.encode("dog")
    assert b"".join(map(tokenizer.token_bytes, ids)) == b" dog"
    assert stream(tokenizer, ids) == "dog"
    assert stream(tokenizer, ids, begins_text=False) == " dog"
    special = list(tokenizer.special_tokens)
    assert stream(tokenizer, [*special, *ids, *special]) == "dog"


@pytest.mark.parametrize("kind", WITH_SPACE_BEHIND)
def test_the_space_behind_a_word_comes_with_the_next(kind: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(kind, tmp_path)
    detokenizer, ids = Detokenizer(tokenizer), tokenizer.encode("the dog")
    assert "".join(map(detokenizer.push, ids)) == "the dog"
    assert detokenizer.finish() == ""


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_in_a_text_is_special(kind: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(kind, tmp_path)
    special = {i for i in tokenizer.special_tokens if i != tokenizer.unknown_id}
    for text in ("<s> dog </s> <pad>", "</s>", "<s><s>dog", "dog</s>"):
        assert not special & {*tokenizer.encode(text), *tokenizer.encode_inside(text)}
        assert tokenizer.encode_batch([text, "dog"]) == [
            tokenizer.encode(text),
            tokenizer.encode("dog"),
        ]
    parsed = tokenizer.encode("<s>dog</s>", parse_special=True)
    named = [name for i, name in tokenizer.special_tokens.items() if i in parsed]
    assert {"<s>", "</s>"} <= {*named}


def test_what_the_model_does_not_know_is_unknown_to_it(tmp_path: Path) -> None:
    whole = tokenizer_of("unigram", tmp_path)
    cut = Tokenizer(tmp_path / "tokenizer.json", vocab_size=whole.vocab_size - 100)

    lost = next(i for i in reversed(range(whole.vocab_size)) if whole.token_bytes(i).isalpha())
    text = whole.token_bytes(lost).decode()

    assert lost in whole.encode(text)
    assert cut.encode(text)[-1] == cut.unknown_id
    assert cut.encode_batch([text, "dog"]) == [cut.encode(text), whole.encode("dog")]
    assert cut.vocab_size == whole.vocab_size - 100


def test_without_an_unknown_token_it_is_left_out(tmp_path: Path) -> None:
    path = write_byte_tokenizer(tmp_path / "tokenizer.json", TEXTS * 5, 340)
    tokenizer = Tokenizer(path, vocab_size=259)  # bytes only
    assert tokenizer.unknown_id is None
    assert len(tokenizer.decode(tokenizer.encode("the snow"))) < len("the snow")


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        (tokenizers.decoders.CTC(), "decoder CTC is not supported"),
        (tokenizers.decoders.WordPiece(), "WordPiece with cleanup"),
        (tokenizers.decoders.Strip(" ", 0, 2), "Strip"),
        (tokenizers.decoders.Replace(tokenizers.Regex("a+"), "b"), "Replace of 'a\\+'"),
    ],
)
def test_other_decoders_are_refused(decoder: Any, message: str, tmp_path: Path) -> None:
    path = write_byte_tokenizer(tmp_path / "tokenizer.json")
    library = tokenizers.Tokenizer.from_file(str(path))
    library.decoder = decoder
    library.save(str(path))
    with pytest.raises(BundleError, match=message):
        Tokenizer(path)


def with_charsmap(spec: dict[str, Any]) -> None:
    spec["normalizer"]["normalizers"][0]["precompiled_charsmap"] = "AAAA"


def with_high_id(spec: dict[str, Any]) -> None:
    vocabulary = {"<unk>": 0, "<new>": 10**9}
    spec["model"] = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"}
    spec["added_tokens"] = []


def without_unknown(spec: dict[str, Any]) -> None:
    del spec["model"]["unk_id"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (with_charsmap, "not a tokenizer"),
        (with_high_id, "a token has the id 1000000000, of"),
        (without_unknown, "a unigram model needs an unknown token"),
        (lambda spec: spec.update(normalizer=5), "not a tokenizer"),
        (lambda spec: spec.pop("model"), "not a tokenizer"),
    ],
)
def test_damaged_files_are_refused(
    damage: Callable[[dict[str, Any]], object], message: str, tmp_path: Path
) -> None:
    tokenizer_of("unigram", tmp_path)
    path = tmp_path / "tokenizer.json"
    spec = json.loads(path.read_text(encoding="utf-8"))
    damage(spec)
    path.write_text(json.dumps(spec), encoding="utf-8")
    with pytest.raises(BundleError, match=message):
        Tokenizer(path)


def test_nothing_is_left_to_chance(tmp_path: Path) -> None:
    """Dropout of merges is for training (Provilkov et al. 2020)."""
    path = write_byte_tokenizer(tmp_path / "tokenizer.json", TEXTS * 5, 340)
    ids = Tokenizer(path).encode("the black dog")
    library = tokenizers.Tokenizer.from_file(str(path))
    library.model.dropout = 0.9
    library.save(str(path))
    assert [Tokenizer(path).encode("the black dog") for _ in range(5)] == [ids] * 5


@pytest.mark.parametrize("kind", [*WITH_SPACE_BEFORE, *WITH_SPACE_BEHIND])
def test_a_word_that_is_copied_has_its_spaces(kind: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(kind, tmp_path)
    unknown = tokenizer.unknown_id
    assert unknown is not None
    ids = [*tokenizer.encode("the"), unknown, *tokenizer.encode_inside(" dog")]
    is_unknown = [token_id == unknown for token_id in ids]
    source = TokenizedText("le Zoë chien", (Span(0, 2), Span(2, 6), Span(6, 12)))
    attention = np.tile(np.array([0.1, 0.8, 0.1], np.float32), (len(ids), 1))
    pieces = replace_unknown(tokenizer.pieces(ids), is_unknown, attention, source)
    assert b"".join(pieces).decode() == "the Zoë dog"


@pytest.mark.parametrize("kind", KINDS)
def test_stop_strings_end_a_stream_of_any_kind(kind: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(kind, tmp_path)
    detokenizer, stops = Detokenizer(tokenizer), StopStrings(["k d"])
    text = ""
    for token_id in tokenizer.encode("the black dog"):
        text += stops.push(detokenizer.push(token_id))
        if stops.has_stopped:
            break
    assert stops.has_stopped
    assert text == "the blac"


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_lie_in_the_words_of_their_text(kind: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(kind, tmp_path)
    ids = tokenizer.encode("the black dog")

    text = TokenizedText.from_pieces(tokenizer.pieces(ids))

    assert text.text == tokenizer.decode(ids) == "the black dog"
    assert [text.text[span.start : span.end] for span in find_words(text.text)] == text.text.split()
    assert text.spans[0].start == 0
    assert text.spans[-1].end == len(text.text)


@pytest.mark.parametrize("kind", WITH_SPACE_BEFORE)
def test_borders_are_seen_though_the_first_space_is_dropped(kind: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(kind, tmp_path)
    borders = WordBorders(tokenizer)
    first, *others = tokenizer.encode("chien")
    assert first not in borders.inner_ids
    assert {*others, *tokenizer.encode_inside("a")} <= borders.inner_ids
    assert {*tokenizer.encode_inside("(")} <= borders.opening_ids


@pytest.mark.parametrize("kind", WITH_SPACE_BEHIND)
def test_a_word_that_says_where_it_ends_has_no_other_border(kind: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(kind, tmp_path)
    borders = WordBorders(tokenizer)
    assert borders.inner_ids == frozenset()
    assert tokenizer.encode("dog")[-1] in borders.opening_ids


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("before", "begun"), [("", "do"), ("the", " do"), ("the", " dog")])
def test_what_is_written_begins_as_was_asked(
    kind: str, before: str, begun: str, tmp_path: Path
) -> None:
    tokenizer = tokenizer_of(kind, tmp_path)
    ids = tokenizer.encode(before)
    for seed in range(20):
        choose, written = random.Random(seed), [*ids]
        matcher = PrefixConstraints(tokenizer).constraint(begun, not before).start()
        mask = np.zeros(tokenizer.vocab_size, bool)
        matcher.fill_mask(mask)
        while not mask.all():
            written.append(choose.choice(np.flatnonzero(mask).tolist()))
            matcher.accept(written[-1])
            matcher.fill_mask(mask)
        assert tokenizer.decode(written).startswith(before + begun)


@pytest.mark.parametrize("kind", WITH_SPACE_BEFORE)
def test_a_word_may_begin_with_the_space_that_is_dropped(kind: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(kind, tmp_path)
    mask = np.zeros(tokenizer.vocab_size, bool)
    PrefixConstraints(tokenizer).constraint("chien").start().fill_mask(mask)
    assert mask[tokenizer.encode("chien")[0]]
    assert mask[tokenizer.encode_inside("chien")[0]]
    PrefixConstraints(tokenizer).constraint("chien", begins_text=False).start().fill_mask(mask)
    assert not mask[tokenizer.encode("chien")[0]]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "word pieces"])
def test_a_grammar_takes_tokens_as_the_model_has_learnt_them(kind: str, tmp_path: Path) -> None:
    """With the space before a text, or behind it, that is dropped from it. Word pieces have no
    token for a space alone, which a grammar wants to write where nothing else may come.
    """
    tokenizer = tokenizer_of(kind, tmp_path)
    [stop] = [i for i, name in tokenizer.special_tokens.items() if name == "</s>"]
    constraint = Grammars(tokenizer, [stop]).choices(["the dog", "the black"])
    for text in ("the dog", "the black"):
        matcher, mask = constraint.start(), np.zeros(tokenizer.vocab_size, bool)
        for token_id in tokenizer.encode(text):
            matcher.fill_mask(mask)
            assert mask[token_id], (text, tokenizer.token_bytes(token_id))
            matcher.accept(token_id)
        matcher.fill_mask(mask)
        assert mask[stop]


@pytest.mark.parametrize("kind", WITH_SPACE_BEFORE)
def test_where_a_text_goes_on_a_grammar_means_every_space(kind: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(kind, tmp_path)
    [stop] = [i for i, name in tokenizer.special_tokens.items() if name == "</s>"]
    grammars = Grammars(tokenizer, [stop], begins_text=False)
    mask = np.zeros(tokenizer.vocab_size, bool)
    grammars.choices(["dog"]).start().fill_mask(mask)
    assert not mask[tokenizer.encode("dog")[0]]
    grammars.choices([" dog"]).start().fill_mask(mask)
    assert mask[tokenizer.encode("dog")[0]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_may_have_ids_beyond_its_tokenizer(kind: str, tmp_path: Path) -> None:
    plain = tokenizer_of(kind, tmp_path)
    size = plain.vocab_size

    padded = Tokenizer(tmp_path / "tokenizer.json", size + 900)

    assert padded.textless_ids == plain.textless_ids | {*range(size, size + 900)}
    assert padded.special_tokens == plain.special_tokens
    for text in (*TEXTS, "zzz ?! 中文"):
        ids = padded.encode(text)
        assert ids == plain.encode(text)
        mixed = [size, *(mixed_id for token_id in ids for mixed_id in (token_id, size + 7))]
        assert padded.decode(mixed) == stream(padded, mixed) == plain.decode(ids)
    assert (padded.bytes_or_id(size), padded.token_bytes(size)) == (size, b"")


def test_holes_in_a_tokenizer_have_no_text(tmp_path: Path) -> None:
    words = {"<unk>": 0, "a": 1, "dog": 4, "barks": 6}
    model = tokenizers.models.WordLevel(words, unk_token="<unk>")
    library = tokenizers.Tokenizer(model)
    library.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    library.save(str(tmp_path / "tokenizer.json"))
    for size, beyond in ((None, set()), (8, {7}), (5, {5, 6})):
        tokenizer = Tokenizer(tmp_path / "tokenizer.json", size)
        assert tokenizer.textless_ids == ({2, 3, 5} | beyond) & {*range(size or 7)}
        assert tokenizer.decode([1, 2, 4, 3]) == "a dog"
    assert tokenizer.encode("a dog barks") == [1, 4, 0]
