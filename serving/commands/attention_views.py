"""The attention of a sentence by words or by tokens, as it is shown: rows attend to columns.

This module knows text and numbers only.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from serving.bundle.manifest import AttentionKind
from serving.text.alignment import DRAWN_WORD, Array, TokenizedText, find_words, overlap_shares
from serving.text.token_text import parse_token_text

_BLANKS = {" ": "␣", "\n": "⏎", "\t": "⇥"}
_WORD = re.compile(f" *(?:{DRAWN_WORD.pattern})", DRAWN_WORD.flags)  # with the blanks before it


@dataclass(frozen=True)
class View:
    """The weights of one kind.

    weights: [layers, heads, rows, columns] f32; 0 where a row cannot attend.
    layers, heads: the numbers of those that are held; both empty of a mean over several.
    """

    kind: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    weights: Array
    layers: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()


def text_of(tokens: Sequence[str]) -> str:
    """Return the text that tokens stand for."""
    return TokenizedText.from_pieces(map(parse_token_text, tokens)).text


def with_labels(view: View, by_pieces: bool) -> View:
    """Return a view by tokens or by words, with the labels of rows and columns. The weight of a
    word is the sum over its tokens in a column and the mean over them in a row.
    """
    rows, row_shares = _split_into_labels(view.rows, by_pieces or view.kind == AttentionKind.HOPS)
    columns, column_shares = _split_into_labels(view.columns, by_pieces)
    row_shares /= row_shares.sum(axis=1, keepdims=True)
    weights = row_shares @ view.weights.astype(np.float64) @ column_shares.T
    return replace(
        view,
        rows=_label_special_tokens(rows, view.kind),
        columns=_label_special_tokens(columns, view.kind),
        weights=weights.astype(np.float32),
    )


def _split_into_labels(tokens: tuple[str, ...], by_pieces: bool) -> tuple[tuple[str, ...], Array]:
    """Return the labels of the tokens or words to be drawn, and the share of each token in them:
    [parts, tokens]. A token that begins a word is marked with a low line, as in SentencePiece.
    """
    if by_pieces:
        return tuple(token.replace(" ", "▁") for token in tokens), np.eye(len(tokens))
    return _words(tokens)


def _words(tokens: Sequence[str]) -> tuple[tuple[str, ...], Array]:
    """Return words: what lies in none, as special tokens and blanks, stands by itself.

    A special token, which has no text, ends a word as a line does.
    """
    text = TokenizedText.from_pieces(parse_token_text(token) or b"\n" for token in tokens)
    spans = find_words(text.text, _WORD)
    shares = overlap_shares(spans, text.spans)
    alone = np.flatnonzero(shares.sum(axis=0) == 0).tolist()
    labels = [text.text[span.start : span.end].strip() for span in spans]
    labels += [tokens[i] for i in alone]
    shares = np.vstack([shares, np.eye(len(tokens))[alone]])
    order = np.argsort((shares > 0).argmax(axis=1), kind="stable")
    return tuple(labels[i] for i in order), shares[order]


def _label_special_tokens(labels: tuple[str, ...], kind: str) -> tuple[str, ...]:
    """Return labels for special tokens, which have no text, and for blanks. A text that a decoder
    reads begins with the start token; any other ends with the end token.
    """
    texts = ["".join(_BLANKS.get(char, char) for char in label) or "<tag>" for label in labels]
    if labels[-1] == "":
        texts[-1] = "<end>"
    if labels[0] == "" and kind == "decoder":
        texts[0] = "<start>"
    return tuple(texts)


@dataclass(frozen=True)
class WordAttention:
    """A word and the weights of the picture's patches, row after row."""

    text: str
    weights: Array


def attention_of_words(tokens: tuple[str, ...], weights: Array) -> list[WordAttention]:
    """Return the words that tokens [tokens] make, each with the mean of its tokens' weights
    [tokens, patches]. Special tokens make none.
    """
    begins = [i == 0 or not token.strip() or token[0].isspace() for i, token in enumerate(tokens)]
    numbers = list(accumulate(map(int, begins)))
    words = []
    for number in dict.fromkeys(numbers):
        rows = [i for i, number_of_token in enumerate(numbers) if number_of_token == number]
        written = b"".join(parse_token_text(tokens[row]) for row in rows)
        if word := written.decode(errors="replace").strip():
            words.append(WordAttention(word, weights[rows].mean(axis=0)))
    return words
