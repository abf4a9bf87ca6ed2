"""What the outputs of models that only encode mean: scores, shortened embeddings, entities, and
words in the place of masks.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from serving.bundle.manifest import TOP_IDS, TOP_LOGP, Activation
from serving.errors import RequestError
from serving.pipelines.jobs import Entities, Entity, MaskedWord, MaskedWords, Matrix
from serving.requests.parameters import TokenIds
from serving.requests.request import Encoding
from serving.text.spans import Span
from serving.text.tokenizer import Tokenizer

OUTSIDE = "O"  # the label of tokens that belong to no entity
LabelledToken = tuple[str, Span, float]  # a token's label, characters and probability


def apply_activation(logits: Matrix, activation: Activation) -> Matrix:
    """Return the scores of logits, f32 [texts, labels]."""
    exact = logits.astype(np.float64)
    if activation is Activation.SIGMOID:
        exact = 0.5 * (1.0 + np.tanh(0.5 * exact))  # never overflows
    elif activation is Activation.SOFTMAX:
        exact = np.exp(exact - exact.max(axis=1, keepdims=True))
        exact /= exact.sum(axis=1, keepdims=True)
    return exact.astype(np.float32)


def shorten_embeddings(embeddings: Matrix, dimensions: int, is_normalised: bool) -> Matrix:
    """Return the first numbers of embeddings, f32 [texts, dimensions], as models that are trained
    for it mean them: Matryoshka representation learning, Kusupati et al., 2022.

    is_normalised: they have length 1, and the shorter ones get it again.
    """
    if not 1 <= dimensions <= embeddings.shape[1]:
        message = f"must be from 1 to {embeddings.shape[1]}, what the model has"
        raise RequestError("dimensions", dimensions, message)
    exact = embeddings[:, :dimensions].astype(np.float64)
    if is_normalised:
        lengths = np.sqrt((exact * exact).sum(axis=1, keepdims=True))
        exact /= np.maximum(lengths, np.finfo(np.float32).tiny)
    return exact.astype(np.float32)


def group_entities(
    text: str, logits: Matrix, spans: Sequence[Span], labels: Sequence[str]
) -> Entities:
    """Return the entities of a text, given f32 logits [tokens, labels] and the tokens' characters.

    Tokens are grouped as the token classification pipeline of `transformers` does by its strategy
    `simple`: those of one kind that follow each other, unless one begins with B-.
    """
    groups: list[list[LabelledToken]] = []
    for scores, span in zip(apply_activation(logits, Activation.SOFTMAX), spans, strict=True):
        label = labels[int(scores.argmax())]
        if not groups or label.startswith("B-") or _kind(label) != _kind(groups[-1][-1][0]):
            groups.append([])
        groups[-1].append((label, span, float(scores.max())))
    entities = (_entity(text, group) for group in groups)
    return tuple(entity for entity in entities if entity.label != OUTSIDE)


def _kind(label: str) -> str:
    return label[2:] if label.startswith(("B-", "I-")) else label


def _entity(text: str, tokens: Sequence[LabelledToken]) -> Entity:
    (label, (start, _), _), (_, (_, end), _) = tokens[0], tokens[-1]
    score = float(np.mean([score for _, _, score in tokens]))
    return Entity(text[start:end], start, end, label.split("-", 1)[-1], score)


def likeliest_masked_words(
    ids: TokenIds, encoding: Encoding, mask_id: int, top_k: int, tokenizer: Tokenizer
) -> MaskedWords:
    """Return the `top_k` likeliest words of each mask of a text, with its other masks left."""

    def words(place: int) -> Iterator[MaskedWord]:
        best = (encoding[name][place, :top_k].tolist() for name in (TOP_LOGP, TOP_IDS))
        for logp, token in zip(*best, strict=True):
            text = tokenizer.special_tokens.get(token) or tokenizer.decode([token])
            whole = tokenizer.decode([*ids[:place], token, *ids[place + 1 :]])
            yield MaskedWord(math.exp(logp), token, text, whole)

    return tuple(tuple(words(place)) for place, token in enumerate(ids) if token == mask_id)
