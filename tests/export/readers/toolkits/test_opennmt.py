"""OpenNMT-py's checkpoints give the log-probabilities and translations of OpenNMT-py's modules."""

import argparse
import functools
import sys
import types
from collections import Counter, defaultdict
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from export.readers.reading import read_model
from models.configs.base import TranslationModelConfig
from tests.export.readers.toolkits.comparing import (
    TOLERANCE,
    exported,
    largest_error,
    must_compute,
    problems_of,
    some_ids,
)
from tests.export.readers.toolkits.opennmt import NMTModel
from tests.export.readers.toolkits.stateless import Stateless

SPECIAL = ["<unk>", "<blank>", "<s>", "</s>"]
BOS, EOS = 2, 3
NUM_SOURCE, NUM_TARGET = 40, 32
TRANSFORMER: dict[str, Any] = {
    "encoder_type": "transformer",
    "decoder_type": "transformer",
    "position_encoding": True,
    "hidden_size": 32,
    "word_vec_size": 32,
}
SHARED: dict[str, Any] = {"share_embeddings": True, "share_decoder_embeddings": True}
RECURRENT: list[dict[str, Any]] = [
    {"encoder_type": "brnn"},
    {"rnn_type": "GRU", "global_attention": "mlp", "input_feed": 0},
    {"encoder_type": "brnn", "global_attention": "dot", "bridge": True},
    {"encoder_type": "brnn", "rnn_type": "GRU", "bridge": True, "layers": 3, "word_vec_size": 16}
    | SHARED
    | {"global_attention": "mlp"},
    {"layers": 1, "share_decoder_embeddings": True, "word_vec_size": 16},
]
TRANSFORMERS: list[dict[str, Any]] = [
    TRANSFORMER,
    TRANSFORMER | SHARED | {"add_qkvbias": True, "add_ffnbias": True},
    TRANSFORMER | {"pos_ffn_activation_fn": "gated-gelu", "layer_norm": "rms", "num_kv": 2},
    TRANSFORMER | {"position_encoding_type": "SinusoidalConcat", "add_ffnbias": True},
    TRANSFORMER | {"pos_ffn_activation_fn": "silu", "share_decoder_embeddings": True},
]


def vocabulary(side: str, num_words: int) -> list[str]:
    return SPECIAL + [f"{side}{i}" for i in range(num_words - len(SPECIAL))]


def saved(folder: Path, changes: dict[str, Any]) -> tuple[NMTModel, Path]:
    torch.manual_seed(0)
    source = vocabulary("w", NUM_TARGET if changes.get("share_embeddings") else NUM_SOURCE)
    target = vocabulary("w", NUM_TARGET)
    model = NMTModel(len(source), len(target), **changes).eval()
    path = folder / "model_step_1000.pt"
    torch.save(model.checkpoint(source, target), path)
    return model, path


def changed(folder: Path, change: Any) -> Path:
    """A checkpoint that `change` has been at."""
    _, path = saved(folder, {"encoder_type": "brnn"})
    tree = torch.load(path, weights_only=False)
    change(tree)
    torch.save(tree, path)
    return path


@pytest.mark.parametrize("changes", [*RECURRENT, *TRANSFORMERS], ids=str)
def test_bundles_compute_what_the_modules_compute(tmp_path: Path, changes: dict[str, Any]) -> None:
    model, path = saved(tmp_path, changes)
    reference = Stateless(model, BOS, EOS, keeps_eos=False)
    must_compute(path, tmp_path / "bundle", reference, some_ids(6, 9, NUM_TARGET))


def test_conventions_and_words(tmp_path: Path) -> None:
    _, path = saved(tmp_path, {"encoder_type": "brnn"})
    checkpoint = read_model(path)
    around = checkpoint.conventions
    assert (around.source_prefix, around.source_suffix) == ((), ())
    assert (around.prompt_prefix, around.stop, around.unk) == ((BOS,), (EOS,), 0)
    assert around.generation == {"max_new_tokens": 250}
    assert isinstance(checkpoint.config, TranslationModelConfig)
    assert checkpoint.config.source_languages == ("und",)
    source = Tokenizer.from_str(checkpoint.tokenizer)
    assert source.encode("w0 w35 nothing").ids == [4, 39, 0]
    target = Tokenizer.from_str(checkpoint.target_tokenizer)
    assert target.decode([4, 5]) == "w0 w1"


def test_codes_beside_the_checkpoint_cut_words(tmp_path: Path) -> None:
    model, path = saved(tmp_path, {"layers": 1})
    words = [*SPECIAL, "lo@@", "w", "er", *(f"w{i}" for i in range(NUM_TARGET - 7))]
    source = words + [f"x{i}" for i in range(NUM_SOURCE - NUM_TARGET)]
    torch.save(model.checkpoint(source, words), path)
    (tmp_path / "bpe.codes").write_text("#version: 0.2\nl o\ne r</w>\n")
    tokenizer = Tokenizer.from_str(read_model(path).tokenizer)
    assert tokenizer.encode("low").ids == [4, 5]
    assert tokenizer.decode([4, 6]) == "loer"


def test_versions_1_and_2_keep_norms_and_generators_under_other_names(tmp_path: Path) -> None:
    model, path = saved(tmp_path, TRANSFORMER | {"add_qkvbias": True, "add_ffnbias": True})
    tree = torch.load(path, weights_only=False)
    tree["generator"] = {f"0.{name}": each for name, each in tree["generator"].items()}
    for name in [name for name in tree["model"] if "layer_norm" in name]:
        old = name.replace("weight", "a_2").replace("bias", "b_2")
        tree["model"][old] = tree["model"].pop(name)
    torch.save(tree, path, _use_new_zipfile_serialization=False)
    _, bundle = exported(path, tmp_path / "bundle")
    reference = Stateless(model, BOS, EOS, keeps_eos=False)
    assert largest_error(bundle, reference, some_ids(3, 9, NUM_TARGET)) < TOLERANCE


def torchtext_vocabulary(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> Any:
    """As of versions 1 and 2: objects of torchtext's classes, and of OpenNMT-py's."""

    def class_of(module: str, name: str, **attributes: Any) -> Any:
        for path in accumulate(module.split("."), lambda outer, inner: f"{outer}.{inner}"):
            monkeypatch.setitem(sys.modules, path, sys.modules.get(path, types.ModuleType(path)))
        made = type(name, (), {"__module__": module})
        vars(sys.modules[module]).setdefault(name, made)
        instance = getattr(sys.modules[module], name)()
        vars(instance).update(attributes)
        return instance

    cut = class_of("onmt.inputters.text_dataset", "_feature_tokenize").__class__
    unknown = class_of("torchtext.vocab", "_default_unk_index").__class__
    ids = defaultdict(unknown, {word: i for i, word in enumerate(words)})
    counts = Counter(words)
    vocab = class_of("torchtext.vocab", "Vocab", freqs=counts, itos=words, stoi=ids, vectors=None)
    tokenize = functools.partial(cut, layer=0)
    field = class_of(
        "torchtext.data.field", "Field", vocab=vocab, tokenize=tokenize, dtype=torch.int64
    )
    return class_of("onmt.inputters.text_dataset", "TextMultiField", fields=[("src", field)])


@pytest.mark.parametrize("is_legacy", [True, False])
def test_vocabularies_that_are_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_legacy: bool
) -> None:
    model, path = saved(tmp_path, {"layers": 1})
    tree = model.checkpoint([], [])
    sides = {"src": vocabulary("old", NUM_SOURCE), "tgt": vocabulary("w", NUM_TARGET)}
    tree["vocab"] = {
        side: torchtext_vocabulary(monkeypatch, words) for side, words in sides.items()
    }
    if is_legacy:
        vocabularies = {side: field.fields[0][1].vocab for side, field in tree["vocab"].items()}
        tree["vocab"] = list(vocabularies.items())
    torch.save(tree, path)
    monkeypatch.undo()
    assert Tokenizer.from_str(read_model(path).tokenizer).encode("old0 old35").ids == [4, 39]


def test_weights_in_safetensors_beside_the_checkpoint(tmp_path: Path) -> None:
    model, path = saved(tmp_path, TRANSFORMER)
    tree = torch.load(path, weights_only=False)
    torch.save({name: tree[name] for name in ("vocab", "opt", "optim")}, path)
    assert "it is no checkpoint of OpenNMT-py, fairseq or openai/whisper" in problems_of(path)[0]
    save_file(model.state_dict(), path.with_suffix(".safetensors"))
    _, bundle = exported(path, tmp_path / "bundle")
    reference = Stateless(model, BOS, EOS, keeps_eos=False)
    assert largest_error(bundle, reference, some_ids(3, 9, NUM_TARGET)) < TOLERANCE


UNSUPPORTED: list[dict[str, Any]] = [
    {"copy_attn": True},
    {"coverage_attn": True},
    {"context_gate": "both"},
    {"global_attention": "none"},
    {"global_attention_function": "sparsemax"},
    {"generator_function": "sparsemax"},
    {"rnn_type": "SRU"},
    {"encoder_type": "cnn"},
    {"decoder_type": "cnn"},
    {"model_task": "lm"},
    {"bridge": "yes"},
]


@pytest.mark.parametrize("change", UNSUPPORTED, ids=str)
def test_what_is_not_supported_is_said_by_name_and_value(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    path = changed(tmp_path, lambda tree: vars(tree["opt"]).update(change))
    [(name, value)] = change.items()
    assert any(f"{name} {value!r}" in problem for problem in problems_of(path))


def test_everything_unsupported_in_a_transformer_is_said_at_once(tmp_path: Path) -> None:
    _, path = saved(tmp_path, TRANSFORMER)
    tree = torch.load(path, weights_only=False)
    wrong = {"max_relative_positions": 20, "parallel_residual": True, "num_experts": 4}
    vars(tree["opt"]).update(wrong | {"pos_ffn_activation_fn": "mish", "heads": "four"})
    torch.save(tree, path)
    problems = problems_of(path)
    for name in (*wrong, "pos_ffn_activation_fn", "heads"):
        assert any(name in problem for problem in problems), name


def test_missing_misshapen_and_foreign_tensors_are_listed(tmp_path: Path) -> None:
    def change(tree: dict[str, Any]) -> None:
        model = tree["model"]
        del model["decoder.attn.linear_in.weight"]
        model["encoder.rnn.weight_hh_l1_reverse"] = torch.zeros(3, 3)
        model["decoder.rnn.layers.0.bias_ih"] = torch.zeros(64, dtype=torch.long)
        model["decoder.attn.linear_cover.weight"] = torch.zeros(16, 1)

    problems = problems_of(changed(tmp_path, change))
    assert sorted(problems) == [
        "decoder.attn.linear_cover.weight is not expected",
        "decoder.attn.linear_in.weight is missing",
        "decoder.rnn.layers.0.bias_ih holds I64, which is not supported",
        "encoder.rnn.weight_hh_l1_reverse has shape [3, 3], expected [32, 8]",
    ]


CHANGES: dict[str, Any] = {
    "no tables": lambda tree: tree["model"].clear(),
    "no options": lambda tree: tree.update(opt=argparse.Namespace()),
    "options of another kind": lambda tree: tree.update(opt=[1]),
    "weights of another kind": lambda tree: tree.update(model=3, generator="x"),
    "no words": lambda tree: tree.update(vocab={}),
    "words of another kind": lambda tree: tree.update(vocab={"src": [1], "tgt": "words"}),
    "too few words": lambda tree: tree["vocab"]["src"].pop(),
    "a word twice": lambda tree: tree["vocab"]["tgt"].__setitem__(9, "w1"),
    "no special words": lambda tree: tree["vocab"].update(tgt=[f"x{i}" for i in range(NUM_TARGET)]),
    "an unknown start": lambda tree: tree["vocab"].update(decoder_start_token="<go>"),
    "pieces without their model": lambda tree: tree["vocab"]["src"].__setitem__(7, "▁the"),
}


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_damaged_checkpoints(tmp_path: Path, change: str) -> None:
    path = changed(tmp_path, CHANGES[change])
    if change == "no options":  # the defaults are those of an encoder in one direction
        assert any("shape" in problem for problem in problems_of(path))
    else:
        assert problems_of(path)


@pytest.mark.parametrize(
    ("longest", "split_tokens"),
    [(None, None), (50, 50), (99, 99), (100, None), (200, None), (0, None), ("50", None)],
)
def test_the_longest_sentence_is_that_of_the_training(
    tmp_path: Path, longest: Any, split_tokens: int | None
) -> None:
    path = changed(tmp_path, lambda tree: setattr(tree["opt"], "src_seq_length", longest))
    config = read_model(path).config
    assert isinstance(config, TranslationModelConfig)
    assert config.split_tokens == split_tokens
