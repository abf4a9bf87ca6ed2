"""Marian's files give the scores and translations of Marian's own arithmetic, in plain numpy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.bundling.decoding import decode
from export.bundling.running import GraphRows
from export.bundling.writer import export_checkpoint
from export.readers.reading import read_model
from models.checkpoint import Checkpoint
from models.conventions import AddedLanguageIds
from models.loading import load_module
from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle, open_bundle
from serving.requests.request import GenerationRequest
from serving.text.shortlist import Shortlist
from tests.export.readers.marian.files import (
    NUM_PIECES,
    OPTIONS,
    bergamot_folder,
    quantised,
    random_weights,
    some_shortlist,
    vocabulary,
    write_npz,
)
from tests.export.readers.marian.reference import Reference

EOS, UNK, BOS = 0, 1, NUM_PIECES
NUM_NEW = 8
PRE_NORM = {"transformer-preprocess": "n", "transformer-postprocess": "da"}
PRE_NORM |= {"transformer-postprocess-top": "n", "transformer-postprocess-emb": "nd"}
SELF_ATTENTION = {"transformer-decoder-autoreg": "self-attention"}
UNTIED = {"tied-embeddings-all": False}
MODELS: list[dict[str, Any]] = [
    {},
    PRE_NORM | {"transformer-ffn-activation": "swish"},
    SELF_ATTENTION | UNTIED | {"transformer-ffn-activation": "gelu"},
    SELF_ATTENTION | PRE_NORM | {"transformer-train-position-embeddings": True},
    UNTIED | {"tied-embeddings": True, "output-omit-bias": True},
    UNTIED | {"tied-embeddings-src": True, "dec-depth": 1},
]
SOURCES = [[5, 9, 30, 7, 22, 200, 6, 11, EOS], [8, EOS], [300, 301, 17, 9, EOS]]


def npz_folder(folder: Path, changes: dict[str, Any]) -> tuple[Path, Reference]:
    """A folder of float weights, with two vocabularies and no configuration."""
    options = OPTIONS | changes
    arrays = random_weights(options, NUM_PIECES, NUM_PIECES)
    write_npz(folder / "model.npz", arrays, options)
    for name in ("srcvocab.enpt.spm", "trgvocab.enpt.spm"):
        (folder / name).write_bytes(vocabulary())
    return folder, Reference(arrays, options)


def targets(num: int) -> list[list[int]]:
    return np.random.default_rng(2).integers(2, NUM_PIECES, (num, NUM_NEW)).tolist()


def log_softmax(logits: np.ndarray) -> np.ndarray:
    above = logits - logits.max(-1, keepdims=True)
    return above - np.log(np.exp(above).sum(-1, keepdims=True))


def expected_scores(model: Reference, source: list[int], target: list[int]) -> np.ndarray:
    """Log-probabilities of all but <unk>, which Marian never produces."""
    logits = model.logits(source, target)
    logits[:, UNK] = -np.inf
    return log_softmax(logits)


@pytest.mark.parametrize("changes", MODELS)
def test_scores_and_translations_are_those_of_marian(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    folder, model = npz_folder(tmp_path, changes)
    checkpoint = read_model(folder)
    export_checkpoint(checkpoint, tmp_path / "bundle", Precision.FP32)
    bundle = open_bundle(tmp_path / "bundle")
    forced = targets(len(SOURCES))
    found = GraphRows(bundle, SOURCES).score([[BOS, *target] for target in forced])
    by_torch = torch_scores(checkpoint, forced)
    for row, (source, target) in enumerate(zip(SOURCES, forced, strict=True)):
        expected = expected_scores(model, source, target)
        real = [i for i in range(NUM_PIECES) if i != UNK]
        for scores in (found[row], by_torch[row]):
            assert np.abs(scores[:, real] - expected[:, real]).max() < 1e-4
            assert np.exp(scores[:, [UNK, BOS]]).max() == 0
    assert greedy(bundle, None) == [by_reference(model, source) for source in SOURCES]


def torch_scores(checkpoint: Checkpoint, forced: list[list[int]]) -> list[np.ndarray]:
    module = load_module(checkpoint)
    found = []
    for source, target in zip(SOURCES, forced, strict=True):
        state, rows = module.encode(torch.tensor([source]), torch.tensor([len(source)])), []
        for token_id in [BOS, *target]:
            hidden, state = module.step(torch.tensor([token_id]), state)
            rows.append(module.project(hidden)[0].log_softmax(-1).detach().numpy())
        found.append(np.stack(rows))
    return found


def greedy(bundle: Bundle, shortlist: Shortlist | None) -> list[list[int]]:
    requests = [
        GenerationRequest(
            str(i),
            tuple(source),
            max_new_tokens=NUM_NEW,
            shortlist=shortlist.tokens_for(tuple(source)) if shortlist else None,
        )
        for i, source in enumerate(SOURCES)
    ]
    return decode(bundle, requests)


def by_reference(
    model: Reference, source: list[int], candidates: list[int] | None = None
) -> list[int]:
    ids: list[int] = []
    for _ in range(NUM_NEW):
        scores = expected_scores(model, source, ids)[-1]
        if candidates is not None:
            scores[np.setdiff1d(np.arange(NUM_PIECES), candidates)] = -np.inf
        best = int(scores.argmax())
        if best == EOS:
            break
        ids.append(best)
    return ids


@pytest.mark.parametrize(
    "changes", [{}, UNTIED, SELF_ATTENTION | {"transformer-ffn-activation": "gelu"}]
)
def test_int8_files_give_their_weights_and_shortlists(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    arrays = bergamot_folder(tmp_path / "en-pt", **changes)
    levels, multipliers = quantised(arrays)
    weights = arrays | {name: levels[name] / multipliers[name] for name in levels}
    model = Reference(weights, OPTIONS | changes)
    checkpoint = read_model(tmp_path / "en-pt")
    assert checkpoint.bits == 8
    export_checkpoint(checkpoint, tmp_path / "bundle", Precision.FP32)
    bundle = open_bundle(tmp_path / "bundle")
    shortlist = Shortlist.load(bundle)
    assert shortlist is not None
    lists = some_shortlist(NUM_PIECES, NUM_PIECES)
    expected = []
    for source in SOURCES:
        candidates = sorted({*range(30), *source, *(i for j in source for i in lists[j])})
        assert shortlist.tokens_for(tuple(source)).tolist() == candidates
        expected.append(by_reference(model, source, candidates))
    assert greedy(bundle, shortlist) == expected
    assert greedy(bundle, None) == [by_reference(model, source) for source in SOURCES]


@pytest.mark.parametrize("changes", [{}, UNTIED, {"transformer-ffn-activation": "gelu"}])
def test_int8_computes_as_marian_does(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Inputs are multiplied by the file's alphas, rounded and clipped. Errors of fp32 may move one
    of them across a border now and then; without the clipping the scores are further off.
    """
    alpha = 25.0  # so large that much is clipped
    arrays = bergamot_folder(tmp_path / "model", alphas=alpha, **changes)
    levels, multipliers = quantised(arrays)
    weights = arrays | {name: levels[name] / multipliers[name] for name in levels}
    options = OPTIONS | changes
    export_checkpoint(read_model(tmp_path / "model"), tmp_path / "bundle", Precision.INT8)
    forced = targets(len(SOURCES))
    rows = GraphRows(open_bundle(tmp_path / "bundle"), SOURCES)
    found = rows.score([[BOS, *target] for target in forced])
    real = [i for i in range(NUM_PIECES) if i != UNK]
    errors = {
        clipped: np.concatenate(
            [
                np.abs(found[row][:, real] - expected_scores(model, source, target)[:, real])
                for row, (source, target) in enumerate(zip(SOURCES, forced, strict=True))
            ]
        ).mean()
        for clipped, model in (
            (True, Reference(weights, options, alpha)),
            (False, Reference(weights, options)),
        )
    }
    assert errors[True] < 1e-3 < 0.01 < errors[False]


def test_what_a_folder_says_becomes_conventions(tmp_path: Path) -> None:
    bergamot_folder(tmp_path / "model")
    checkpoint = read_model(tmp_path / "model")
    config, conventions = checkpoint.config, checkpoint.conventions
    assert (config.source_languages, config.target_languages) == (("en",), ("pt",))  # type: ignore[union-attr]
    assert config.vocab_size == NUM_PIECES + 1
    assert (conventions.source_suffix, conventions.prompt_prefix) == ((EOS,), (BOS,))
    assert (conventions.stop, conventions.unk) == ((EOS,), UNK)
    assert conventions.generation == {"max_length_factor": 2.5, "num_beams": 1}
    assert checkpoint.files.keys() == {"README.md", "tokenizer.json", "shortlist.safetensors"}
    assert b"model.enpt.intgemm.alphas.bin" in checkpoint.files["README.md"]


@pytest.mark.parametrize(
    ("line", "split_tokens"),
    [
        ("", None),
        ("max-length-break: 128\n", 128),
        ("max-length: 1000\n", None),  # the longest that is read: few were so long
        ("max-length: 60\n", 60),
        ("max-length: 60\nmax-length-break: 40\n", 40),
    ],
)
def test_the_longest_sentence_is_the_configuration_s(
    tmp_path: Path, line: str, split_tokens: int | None
) -> None:
    bergamot_folder(tmp_path / "model")
    [path] = (tmp_path / "model").glob("config.*.yml")
    path.write_text(path.read_text() + line)
    config = read_model(tmp_path / "model").config
    assert config.split_tokens == split_tokens  # type: ignore[union-attr]


def test_opus_models_have_their_ids_in_yaml(tmp_path: Path) -> None:
    """As in the archives of OPUS-MT: pieces of both sides, numbered together."""
    names = ["</s>", "<unk>", ">>fra<<", ">>pt_BR<<", "▁the", "▁dog", "s", "1", "no", "'", '"']
    arrays = random_weights(OPTIONS, len(names), len(names))
    write_npz(tmp_path / "opus.model.npz.best-perplexity.npz", arrays, OPTIONS)
    quoted = (name.replace('"', '\\"') for name in names)
    lines = (f'"{name}": {token_id}\n' for token_id, name in enumerate(quoted))
    (tmp_path / "opus.vocab.yml").write_text("".join(lines))
    for side in ("source", "target"):
        (tmp_path / f"{side}.spm").write_bytes(vocabulary())
    (tmp_path / "decoder.yml").write_text(
        "models:\n  - opus.model.npz.best-perplexity.npz\n"
        "vocabs:\n  - /somewhere/else/opus.vocab.yml\n  - opus.vocab.yml\n"
        "beam-size: 6\nnormalize: 1\n"
    )
    checkpoint = read_model(tmp_path)
    assert checkpoint.conventions.targets == {
        "fra": AddedLanguageIds(source_prefix=(2,)),
        "pt_BR": AddedLanguageIds(source_prefix=(3,)),
    }
    assert checkpoint.conventions.generation == {
        "max_length_factor": 3.0,
        "num_beams": 6,
        "length_penalty": 1.0,
    }
    assert checkpoint.config.vocab_size == len(names) + 1
