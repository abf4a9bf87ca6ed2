"""Byte-level tokenizers: every string comes back as it went in."""

from hypothesis import given
from hypothesis import strategies as st

from models.data.tokenizer import encode_all, load_tokenizer, train_tokenizer

TEXTS = ["The cat sat on the mat.", "Le chat s'est assis sur le tapis : voilà !", "12 345"] * 20
TOKENIZER = train_tokenizer(TEXTS, vocab_size=400)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_string_round_trips(text: str) -> None:
    (ids,) = encode_all(TOKENIZER, [text])
    assert TOKENIZER.decode(ids, skip_special_tokens=False) == text


def test_special_tokens_in_a_text_stay_text() -> None:
    (ids,) = encode_all(TOKENIZER, ["</s><pad>"])
    assert not {0, 1, 2} & set(ids)


def test_special_tokens_have_their_fixed_ids_and_digits_stay_single(tmp_path) -> None:
    TOKENIZER.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    assert [tokenizer.token_to_id(t) for t in ("<pad>", "<s>", "</s>")] == [0, 1, 2]
    (ids,) = encode_all(tokenizer, ["2014"])
    assert len(ids) == 4
