"""A row's bits do not depend on batch size, padding, neighbours or what lies beyond its source."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.bundling.running import GraphRows
from serving.bundle.manifest import LOGITS, SOURCE, TOP_IDS, TOP_LOGP, Precision
from serving.bundle.opening import Bundle, open_bundle
from serving.engine.config import EngineConfig
from serving.engine.runtime.graph import share_attention_graphs
from serving.engine.runtime.session import open_graphs
from tests.export.parity import Examples, examples_of
from tests.export.texts import (
    LIKE_ALBERT,
    LIKE_DEBERTA,
    LIKE_DEBERTA_XLARGE,
    LIKE_EMBEDDING_GEMMA,
    LIKE_MPNET,
    LIKE_NOMIC,
    LIKE_QWEN_EMBEDDING,
    MASKED_WORDS,
    RERANKER,
    TAGGER,
    encoded,
    random_texts,
)
from tests.grid import full, in_turns
from tests.tiny import (
    DECODERS,
    ENCODERS,
    LIKE_BLOOM,
    LIKE_COMMAND,
    LIKE_DEEPSEEK,
    LIKE_GEMMA,
    LIKE_GPT_OSS,
    LIKE_HUNYUAN,
    LIKE_OLMO,
    LIKE_PHI,
    PICTURE_READER,
    SOUND_READER,
    tiny_bundle,
)

EXPERTS = {"num_experts": 5, "num_used": 2, "ffn_dim": 24}
SOFTMAX_IN_GROUPS = {"num_experts": 6, "groups": {"number": 3, "num_used": 1}}
T5 = {
    "gated_ffn": True,
    "positions": {"kind": "relative"},
    "norm": {"kind": "rms"},
    "imported": {"biases": False},
}
T5 |= {"activation": "gelu_tanh", "head_dim": 24, "ffn_dim": 50}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("transformer", {"num_kv_heads": 2, "positions": {"kind": "relative"}}),
    (
        "transformer",
        {"num_kv_heads": 1, "positions": {"kind": "learned"}, "norm": {"place": "post"}},
    ),
    ("transformer", {"imported": {"encoder_heads": 2, "encoder_ffn_dim": 40}}),
    ("transformer", {"activation": "gelu", "ffn_dim": 50, "positions": {"kind": "affine"}}),
    ("transformer", T5),
    ("transformer", T5 | {"imported": {"layer_positions": True, "encoder_window": 5}}),
    (
        "transformer",
        {"activation": "swish", "imported": {"output_bias": True, "embedding_norm": True}},
    ),
    ("llama", {"window": 5}),
    ("llama", LIKE_GEMMA),
    ("llama", LIKE_DEEPSEEK),
    ("llama", LIKE_GPT_OSS),
    ("llama", LIKE_HUNYUAN),
    ("llama", LIKE_OLMO),
    ("llama", {"head_dim": 20}),
    ("llama", {"imported": {"experts": EXPERTS}}),
    ("llama", {"imported": {"experts": EXPERTS | {"normalised": False, "shared_ffn_dim": 40}}}),
    ("llama", {"imported": {"experts": EXPERTS | SOFTMAX_IN_GROUPS}}),
    ("gpt-neox", LIKE_PHI),
    ("gpt-neox", LIKE_BLOOM),
    ("gpt-neox", {"parallel_residual": False, "imported": {"residual_after_norm": True}}),
    ("gpt-neox", LIKE_COMMAND),
    ("gpt2", {"window": 3, "imported": {"layers_without_window": [1]}}),
    ("gpt2", {"window": 3, "ffn_dim": 50}),
    ("rotary-encoder-decoder", {"head_dim": 12, "num_kv_heads": 3, "tied_embeddings": False}),
    ("luong", {"attention": {"kind": "local-p", "window": 9}, "score": "concat"}),
    (
        "luong",
        {"attention": {"kind": "local-m", "window": 2}, "score": "dot", "input_feeding": False},
    ),
    ("luong", {"cell": "lstm", "num_layers": 2, "reversed_source": True}),
    ("lstmn", {"fusion": "shallow", "hidden_dim": 17, "attention_dim": 11}),
    ("key-value-lm", {"hidden_dim": 33, "window": 5}),
    ("recurrent-lm", {"attention": None, "num_layers": 2, "cell": "lstm"}),
    ("bahdanau", {"cell": "lstm", "score": "scaled-dot"}),
    ("luong", {"score": "location", "hard_attention": True}),
    ("transformer", {"positions": {"kind": "linear"}}),
    ("bahdanau", {"cell": "rnn", "readout": "tanh"}),
    ("sutskever", {"cell": "mut3"}),
    ("bahdanau", {"cell": "gru-reset-before"}),
]
LENGTHS = (17, 1, 40, 6, 16, 15, 31, 60, 3)
EVERY_ROW = list(range(len(LENGTHS)))
BATCHES = [(EVERY_ROW, 0), (EVERY_ROW[::-1], 96), ([1, 8, 3], 44), ([0, 5], 20)]  # rows, span
STEP = 4  # of the spans that the engine pads sources to


PRECISIONS = [Precision.INT8, Precision.FP32, Precision.INT4]


@pytest.mark.parametrize(
    ("architecture", "changes", "precision"),
    [
        *in_turns([(name, {}) for name in DECODERS], PRECISIONS),
        *in_turns(VARIANTS, [Precision.INT8, Precision.FP32]),
    ],
)
def test_rows_are_the_same_alone_and_in_company(
    tmp_path: Path, architecture: str, changes: dict[str, Any], precision: Precision
) -> None:
    # Sizes that are no multiples of the vector width, and enough work for two threads.
    bundle = open_bundle(tiny_bundle(architecture, tmp_path, precision, **changes))
    assert_rows_are_independent(bundle, examples_of(architecture, LENGTHS))


def assert_rows_are_independent(bundle: Bundle, examples: Examples) -> None:
    for threads in (1, 2):
        run = Runs(bundle, examples, threads)
        alone = [run([i], fit(len(source))) for i, source in enumerate(examples.sources)]
        for rows, span in BATCHES:
            for row, actual in zip(rows, run(rows, span), strict=True):
                (expected,) = alone[row]
                for name, array in expected.items():
                    assert np.array_equal(array, actual[name]), (name, rows, row, span, threads)


@pytest.mark.parametrize("precision", [Precision.INT8, *full([Precision.FP32, Precision.INT4])])
@pytest.mark.parametrize("reader", [PICTURE_READER, SOUND_READER])
def test_pictures_and_sound_are_the_same_alone_and_in_company(
    tmp_path: Path, reader: str, precision: Precision
) -> None:
    bundle = open_bundle(tiny_bundle(reader, tmp_path, precision))
    assert_rows_are_independent(bundle, examples_of(reader, LENGTHS))


def fit(length: int) -> int:
    """The least span that a source is padded to."""
    return -(-length // STEP) * STEP


class Runs:
    """Runs a bundle on chosen rows of the examples."""

    def __init__(self, bundle: Bundle, examples: Examples, threads: int) -> None:
        self._bundle, self._examples = bundle, examples
        self._graphs = share_attention_graphs(open_graphs(bundle, EngineConfig(threads=threads)))
        self._has_attention = self._graphs.attention is not None

    def __call__(self, chosen: list[int], span: int) -> list[dict[str, np.ndarray]]:
        """Return encoded states (real positions only), log-probabilities and, where a graph has
        it, attention of each chosen row.
        """
        bundle, examples = self._bundle, self._examples
        sources = [examples.sources[row] for row in chosen]
        rows = GraphRows(
            bundle, sources, span=span, wants_attention=self._has_attention, graphs=self._graphs
        )
        actual = [real_positions(bundle, rows, index, len(s)) for index, s in enumerate(sources)]
        for row, source in enumerate(sources):
            for name, array in rows.source_outputs.items():
                actual[row][name] = array[row, :, : len(source), : len(source)]
        targets = zip(*(examples.targets[row] for row in chosen), strict=True)
        for position, column in enumerate(targets):
            logp = rows.read([[token_id] for token_id in column])
            for row, source in enumerate(sources):
                actual[row][f"logp {position}"] = logp[row]
                for name, array in rows.outputs.items():
                    length = len(source) if name == "attention" else position + 1
                    if name.endswith("attention"):
                        actual[row][f"{name} {position}"] = array[row, ..., :length]
        return actual


def real_positions(bundle: Bundle, rows: GraphRows, row: int, length: int) -> dict[str, np.ndarray]:
    """Copies of the row's states; what lies beyond its source becomes loud garbage."""
    actual = {}
    for state in bundle.manifest.states:
        array = rows.states[state.name][row]
        if SOURCE in state.shape:
            axis = state.shape.index(SOURCE)
            array = np.moveaxis(array, axis, 0)
            array[length:] = np.random.default_rng(row).standard_normal(array[length:].shape) * 1e4
            array = array[:length]
        actual[state.name] = array.copy()
    return actual


OF_ENCODERS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in ENCODERS),
    ("rotary-encoder", LIKE_EMBEDDING_GEMMA),
    ("rotary-encoder", LIKE_NOMIC),
    ("rotary-encoder", LIKE_QWEN_EMBEDDING),
    ("transformer-encoder", RERANKER | {"d_model": 40, "ffn_dim": 70}),
    ("transformer-encoder", LIKE_ALBERT),
    ("transformer-encoder", LIKE_DEBERTA | {"d_model": 40, "ffn_dim": 70}),
    ("transformer-encoder", LIKE_DEBERTA_XLARGE),
    ("transformer-encoder", LIKE_MPNET | {"pooling": ["cls", "max", "mean_sqrt_length", "last"]}),
    ("transformer-encoder", MASKED_WORDS),
    ("transformer-encoder", TAGGER),
]


@pytest.mark.parametrize(
    ("architecture", "changes", "precision"), in_turns(OF_ENCODERS, PRECISIONS)
)
def test_texts_are_the_same_alone_and_in_company(
    tmp_path: Path, architecture: str, changes: dict[str, Any], precision: Precision
) -> None:
    bundle = open_bundle(tiny_bundle(architecture, tmp_path, precision, **changes))
    texts = random_texts(LENGTHS)
    alone = [encoded(bundle, [text], fit(len(text[0])), 2) for text in texts]
    for rows, span in BATCHES:
        actual = encoded(bundle, [texts[row] for row in rows], span, 2)
        for place, row in enumerate(rows):
            length = len(texts[row][0])
            for name, array in actual.items():
                real, expected = (
                    within(name, each, length) for each in (array[place], alone[row][name][0])
                )
                assert np.array_equal(expected, real), (name, row)


OF_TOKENS = (LOGITS, TOP_LOGP, TOP_IDS)


def within(name: str, told: np.ndarray, length: int) -> np.ndarray:
    """Leave padding out of what is told of a text's own tokens."""
    if name == "encoder_attention":
        return told[:, :length, :length]
    if name in OF_TOKENS and told.ndim == 2:
        return told[:length]
    return told[..., :length] if name == "hops" else told
