"""Marian's recurrent networks, and those of Nematus, give the scores and translations of their own
arithmetic, in plain numpy.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from export.readers.reading import read_model
from tests.export.readers.marian.files import write_npz
from tests.export.readers.marian.recurrent_reference import RecurrentReference
from tests.export.readers.toolkits.comparing import must_compute, problems_of, some_ids
from tests.export.readers.toolkits.stateless import Stateless

EOS, UNK = 0, 1
NUM_SOURCE, NUM_TARGET = 40, 32
NORMS = {"layer-normalization": True}
NEMATUS = {"type": "nematus", "enc-cell": "gru-nematus", "dec-cell": "gru-nematus"}
DEEP = {"enc-depth": 3, "enc-cell-depth": 2, "dec-depth": 2, "dec-cell-base-depth": 4}
MODELS: list[dict[str, Any]] = [
    {},
    {"tied-embeddings-all": True, "enc-cell": "lstm", "dec-cell": "lstm"} | NORMS,
    DEEP | NORMS | {"enc-type": "alternating", "skip": True, "dec-cell-high-depth": 2},
    DEEP | {"enc-type": "bi-unidirectional", "tied-embeddings": True, "skip": True},
    {"enc-cell": "tanh", "dec-cell": "tanh", "enc-depth": 2},
    NEMATUS | NORMS | {"enc-cell-depth": 3, "dec-cell-base-depth": 4, "dec-depth": 2},
    NEMATUS | {"tied-embeddings-src": True},
]
AMUN: list[tuple[str, str]] = [  # Marian's names and those of "amun": src/models/amun.h
    ("decoder_cell1_", "decoder_"),
    ("encoder_bi_r_", "encoder_r_"),
    ("encoder_bi_", "encoder_"),
    ("decoder_ff_state", "ff_state"),
    ("decoder_ff_logit_l2", "ff_logit"),
    ("decoder_ff_logit_l1_gamma", "ff_logit_l1_gamma"),
]
CELL_2 = {"U": "U_nl", "Ux": "Ux_nl", "b": "b_nl", "bx": "bx_nl", "W": "Wc", "Wx": "Wcx"}
READOUT = ("prev", "lstm", "ctx")


class Logits:
    """Scores as `Stateless` wants them, with the last token for the vector of zeros."""

    def __init__(self, reference: RecurrentReference) -> None:
        self.reference = reference

    def __call__(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        pairs = zip(source.tolist(), target.tolist(), strict=True)
        scores = np.stack([self.reference.logits(s, t[1:]) for s, t in pairs])
        scores[..., UNK] -= 300 + self.reference.weights["decoder_ff_logit_l2_b"][0, UNK]
        beyond = np.full((*scores.shape[:2], 1), -300.0)
        return torch.tensor(np.concatenate([scores, beyond], -1), dtype=torch.float32)


def stateless(reference: RecurrentReference) -> Stateless:
    return Stateless(Logits(reference), reference.num_target, EOS, keeps_eos=True)


def model_of(folder: Path, changes: dict[str, Any]) -> RecurrentReference:
    """A folder with the model, two vocabularies and a configuration that names them."""
    is_one = changes.get("tied-embeddings-all") or changes.get("tied-embeddings-src")
    reference = RecurrentReference(changes, NUM_TARGET if is_one else NUM_SOURCE, NUM_TARGET)
    write_npz(folder / "model.npz", reference.weights, reference.options)
    for side, number in (("source", reference.num_source), ("target", NUM_TARGET)):
        words = ["</s>", "<unk>", *(f"w{i}" for i in range(number - 2))]
        (folder / f"vocab.{side}.yml").write_text(
            "".join(f'"{w}": {i}\n' for i, w in enumerate(words))
        )
    (folder / "model.npz.decoder.yml").write_text(
        "models:\n  - model.npz\nvocabs:\n  - vocab.source.yml\n  - vocab.target.yml\n"
    )
    return reference


@pytest.mark.parametrize("changes", MODELS, ids=str)
def test_bundles_compute_what_marian_computes(tmp_path: Path, changes: dict[str, Any]) -> None:
    reference = stateless(model_of(tmp_path, changes))
    must_compute(tmp_path, tmp_path / "bundle", reference, some_ids(6, 9, NUM_TARGET))


def named_as_in_nematus(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    found = {}
    for name, array in weights.items():
        if name.startswith("decoder_cell2_") and "gamma" not in name:
            part, _, norm = name.removeprefix("decoder_cell2_").partition("_")
            name = f"decoder_{CELL_2[part]}" + (f"_{norm}" if norm else "")
        for number, part in enumerate(READOUT):
            if name in (
                f"decoder_ff_logit_l1_{kind}{number}" for kind in ("W", "b", "ln_s", "ln_b")
            ):
                name = f"ff_logit_{part}_{name.removeprefix('decoder_ff_logit_l1_')[:-1]}"
        if not name.startswith("decoder_cell1_gamma"):
            for ours, theirs in AMUN:
                name = name.replace(ours, theirs) if name.startswith(ours) else name
        names = {"encoder_Wemb": "Wemb", "decoder_Wemb": "Wemb_dec"}
        found[names.get(name, name)] = array
    return found | {"decoder_c_tt": np.zeros((1, 0), np.float32)}


@pytest.mark.parametrize("is_normed", [True, False])
def test_amun_has_names_of_its_own(tmp_path: Path, is_normed: bool) -> None:
    options = {"type": "amun", "layer-normalization": is_normed}
    reference = model_of(tmp_path, options)
    named = named_as_in_nematus(reference.weights)
    assert {"decoder_Wcx", "ff_logit_lstm_W", "encoder_r_Ux", "Wemb_dec"} <= named.keys()
    write_npz(tmp_path / "model.npz", named, reference.options)
    sources = some_ids(3, 9, NUM_TARGET)
    must_compute(tmp_path, tmp_path / "bundle", stateless(reference), sources)


NEMATUS_SETTINGS: dict[str, Any] = {
    "dim_word": 12,
    "dim": 16,
    "encoder": "gru",
    "decoder": "gru_cond",
    "enc_depth": 1,
    "dec_depth": 1,
    "enc_recurrence_transition_depth": 1,
    "dec_base_recurrence_transition_depth": 2,
    "layer_normalisation": True,
    "tie_decoder_embeddings": True,
    "factors": 1,
    "use_dropout": True,
    "model_version": 0.1,
    "deep_fusion_lm": None,
    "dictionaries": ["/data/vocab.en.json", "/data/vocab.de.json"],
}


def nematus_folder(folder: Path, changes: dict[str, Any]) -> RecurrentReference:
    """As Nematus on Theano saves it: vectors with one axis, options and words in JSON."""
    options = NEMATUS | NORMS | {"tied-embeddings": True}
    reference = RecurrentReference(options, NUM_SOURCE, NUM_TARGET)
    named = named_as_in_nematus(reference.weights)
    arrays = {name: w[0] if len(w) == 1 and w.size else w for name, w in named.items()}
    arrays = {name: w.astype(np.float32) for name, w in arrays.items()}
    history = {"history_errs": np.array([None, "x"], object), "uidx": np.array(3)}
    everything: dict[str, Any] = arrays | history
    np.savez(folder / "model.npz", **everything)
    (folder / "model.npz.json").write_text(json.dumps(NEMATUS_SETTINGS | changes))
    for language, number in (("en", NUM_SOURCE), ("de", NUM_TARGET)):
        words = ["eos", "UNK", "lo@@", "w", *(f"w{i}" for i in range(number))]  # more than it has
        ids = {word: i for i, word in enumerate(words)}
        (folder / f"vocab.{language}.json").write_text(json.dumps(ids))
    return reference


def test_models_of_nematus(tmp_path: Path) -> None:
    reference = nematus_folder(tmp_path, {})
    must_compute(tmp_path, tmp_path / "bundle", stateless(reference), some_ids(3, 9, NUM_TARGET))
    checkpoint = read_model(tmp_path)
    source = Tokenizer.from_str(checkpoint.tokenizer)
    assert source.encode("lo@@ w w35 w36 eos").ids == [2, 3, 39, UNK, UNK]
    assert checkpoint.conventions.unk == UNK


UNSUPPORTED: list[dict[str, Any]] = [
    {"decoder": "lstm_cond"},
    {"enc_depth": 4},
    {"factors": 2},
    {"weight_normalisation": True},
    {"deep_fusion_lm": "lm.npz"},
    {"dim": "large"},
]


@pytest.mark.parametrize("change", UNSUPPORTED, ids=str)
def test_what_is_not_supported_of_nematus_is_said(tmp_path: Path, change: dict[str, Any]) -> None:
    nematus_folder(tmp_path, change)
    [(name, value)] = change.items()
    name = {"dim": "dim-rnn"}.get(name, name)
    assert any(f"{name} {value!r}" in problem for problem in problems_of(tmp_path))


def test_old_models_with_dropout_would_need_other_weights(tmp_path: Path) -> None:
    nematus_folder(tmp_path, {"model_version": 0})
    assert problems_of(tmp_path) == [
        "model.npz.json: use_dropout True is not supported where model_version is below 0.1"
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"enc-cell": "sru"}, "enc-cell 'sru' is not supported"),
        ({"dec-cell": "lstm"}, "dec-cell 'lstm' is not supported"),
        ({"enc-type": "unidirectional"}, "enc-type 'unidirectional' is not supported"),
        ({"enc-cell": "tanh", "dec-cell": "tanh"} | NORMS, "layer-normalization True"),
        (NEMATUS | NORMS | {"type": "s2s"}, "layer-normalization True"),
        ({"lemma-dim-emb": 3}, "lemma-dim-emb 3 is not supported"),
    ],
    ids=str,
)
def test_what_is_not_supported_of_marian_is_said(
    tmp_path: Path, change: dict[str, Any], expected: str
) -> None:
    reference = model_of(tmp_path, {})
    write_npz(tmp_path / "model.npz", reference.weights, reference.options | change)
    assert any(expected in problem for problem in problems_of(tmp_path))


def test_missing_and_foreign_tensors_are_listed(tmp_path: Path) -> None:
    reference = model_of(tmp_path, {})
    weights = reference.weights | {"decoder_cell3_U": np.zeros((16, 32), np.float32)}
    del weights["decoder_cell2_Wx"]
    write_npz(tmp_path / "model.npz", weights, reference.options)
    assert sorted(problems_of(tmp_path)) == [
        "decoder_cell2_Wx is missing",
        "decoder_cell3_U is not expected",
    ]


VOCABULARIES = {
    "no end": '"w": 0\n"<unk>": 1\n',
    "no unknown": '"</s>": 0\n"w": 1\n',
    "no numbers": '"</s>": zero\n"<unk>": 1\n',
    "a list": "- </s>\n",
}


@pytest.mark.parametrize("text", VOCABULARIES.values(), ids=VOCABULARIES)
def test_damaged_vocabularies(tmp_path: Path, text: str) -> None:
    model_of(tmp_path, {})
    (tmp_path / "vocab.target.yml").write_text(text)
    [problem] = problems_of(tmp_path)
    assert problem.startswith("vocab.target.yml ")


@pytest.mark.parametrize("content", ["[" * 100_000, "</s>: [0]\n"])
def test_a_vocabulary_that_nests_is_refused(content: str, tmp_path: Path) -> None:
    """The parser in C would follow it down until the process ends."""
    model_of(tmp_path, MODELS[0])
    (tmp_path / "vocab.source.yml").write_text(content)
    assert any("vocab.source.yml cannot be read" in each for each in problems_of(tmp_path))
