"""Heads of encoders of `transformers`: labels of texts, of pairs or of tokens, and masked words.

`architectures` says which head a folder has. Masked words are scored with the table of embeddings.
"""

from dataclasses import dataclass
from typing import Any

from export.readers.common.shapes import Shapes, linear_shapes, norm_shapes
from export.readers.common.weights import Names, TensorReference
from export.readers.hugging_face.folder import Folder
from export.readers.hugging_face.sentence_transformers import MODULES_FILE, TextOptions, special_id
from export.readers.hugging_face.tokenizers import token_ids
from models.configs.base import EncoderConfig, MaskedWordHead

CLASSIFIER = "ForSequenceClassification"
TOKEN_CLASSIFIER, MASKED_WORDS = "ForTokenClassification", "ForMaskedLM"
SCORES = {"Sigmoid": "sigmoid", "Identity": "none", "Softmax": "softmax"}
TOKEN_LABELS: Names = {"head.labels": "classifier"}


@dataclass(frozen=True)
class WordHead:
    """Their names of what scores masked words.

    biases: under one of these names. table: where it is stored a second time. activation: None is
    that of the model's layers.
    """

    dense: str
    norm: str
    biases: tuple[str, ...]
    table: str
    activation: str | None = "gelu"

    def names(self, norm_words: tuple[str, str]) -> Names:
        """Return their names by ours."""
        return {
            "head.dense": self.dense,
            "head.norm": TensorReference(self.norm, norm_words),
            "head.bias": TensorReference(self.biases),
        }


BERT_WORDS = WordHead(
    "cls.predictions.transform.dense",
    "cls.predictions.transform.LayerNorm",
    ("cls.predictions.bias", "cls.predictions.decoder.bias"),
    "cls.predictions.decoder.weight",
    activation=None,
)
DISTILBERT_WORDS = WordHead(
    "vocab_transform",
    "vocab_layer_norm",
    ("vocab_projector.bias",),
    "vocab_projector.weight",
    activation=None,
)
ROBERTA_WORDS = WordHead(
    "lm_head.dense",
    "lm_head.layer_norm",
    ("lm_head.bias", "lm_head.decoder.bias"),
    "lm_head.decoder.weight",
)


def is_classifier(folder: Folder) -> bool:
    """Return whether texts get labels."""
    return any(kind.endswith(CLASSIFIER) for kind in folder.config.words("architectures"))


def head_kind(folder: Folder, words: WordHead | None) -> str:
    """Return the kind of our head. Folders of Sentence Transformers embed texts, and so does a
    masked language model of a family whose `words` are not known.
    """
    kinds = folder.config.words("architectures")
    if is_classifier(folder):
        return "labels"
    if any(kind.endswith(TOKEN_CLASSIFIER) for kind in kinds):
        return "token-labels"
    is_masked = any(kind.endswith(MASKED_WORDS) for kind in kinds)
    embeds = words is None or (folder.path / MODULES_FILE).is_file()
    return "masked-words" if is_masked and not embeds else "embedding"


def masked_words(
    folder: Folder, words: WordHead, embedding: str, values: dict[str, Any]
) -> dict[str, Any]:
    """Return our head. embedding: their name of the table. values: ours of the model so far."""
    folder.config.only("tie_word_embeddings", True)
    if folder.tensors.differ(embedding, words.table):
        message = f"{words.table} has other numbers than {embedding}, which is not supported"
        folder.problems.append(message)
    return {
        "kind": "masked-words",
        "mask_id": mask_id(folder),
        "activation": words.activation or values["activation"],
        "norm_epsilon": values["norm_epsilon"],
    }


def mask_id(folder: Folder) -> int:
    """Return the token that stands for a word to guess; a folder without one gets a problem."""
    if folder.tokenizers is None:
        return 0
    names = ("mask_token", "[MASK]", "<mask>")
    return special_id(folder, names, token_ids(folder.tokenizers.source))


def read_labels(folder: Folder) -> list[str]:
    """Read their names in the order of their numbers; those of two that have none are not said."""
    names = folder.config.section("id2label")
    numbers = sorted(names.values, key=lambda number: (len(number), number))
    if numbers != [str(number) for number in range(len(numbers))]:
        folder.config.refuse("id2label", "does not count from 0 on")
    return [names.word(number) for number in numbers] or ["LABEL_0", "LABEL_1"]


def read_score_activation(folder: Folder, text_options: TextOptions, num_labels: int) -> str:
    """Return the activation of logits: that of a cross-encoder's configuration, else the one of
    `transformers`.
    """
    options = folder.config
    cross_encoder = options.section("sentence_transformers")
    cross_encoder.use("version")
    activation = text_options.activation or cross_encoder.word("activation_fn", "")
    activation = activation or options.word("sbert_ce_default_activation_function", "")
    if activation:
        function = SCORES.get(activation.rpartition(".")[2])
        if function is None:
            options.problems.append(f"{options.file}: activation {activation!r} is not supported")
        return function or "none"
    problem = options.word("problem_type", "")
    if problem == "regression":
        return "none"
    return "sigmoid" if num_labels == 1 or problem.startswith("multi_label") else "softmax"


def head_shapes(config: EncoderConfig) -> Shapes:
    """Return the shapes of the head's weights."""
    dim = config.vector_dim
    if isinstance(config.head, MaskedWordHead):
        shapes = linear_shapes({"head.dense": (dim, dim)}, bias=True)
        return {
            **shapes,
            **norm_shapes(["head.norm"], dim, bias=True),
            "head.bias": (config.vocab_size,),
        }
    shapes = {}
    for number, dense in enumerate(config.head.dense):
        shapes |= linear_shapes({f"head.dense.{number}.linear": (dense.dim, dim)}, bias=dense.bias)
        if dense.norm_epsilon is not None:
            shapes |= norm_shapes([f"head.dense.{number}.norm"], dense.dim, bias=True)
        dim = dense.dim
    if config.labels:
        shapes |= linear_shapes({"head.labels": (len(config.labels), dim)}, bias=True)
    return shapes
