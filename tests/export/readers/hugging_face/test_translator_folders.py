"""Folders of encoder-decoders as users have them: their tokenizers, defaults, older files, and what
is wrong with them.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from click.testing import CliRunner
from safetensors.numpy import load_file, save_file

from export.bundling.writer import export_checkpoint
from export.cli import export
from export.readers.common.tokenizers import read_piece_ids
from export.readers.hugging_face.tokenizers import read_tokenizers
from export.readers.reading import read_model
from models.checkpoint import Checkpoint, CheckpointError
from models.configs.base import TranslationModelConfig
from models.conventions import AddedLanguageIds
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from serving.commands.translate import translate
from serving.text.tokenizer import Tokenizer
from tests.export.readers.common.sentencepiece_models import trained
from tests.export.readers.hugging_face.translators import FAMILIES, MARIAN, save
from tests.grid import full

TEXT = "A dog runs in the snow."


def folder_of(name: str, folder: Path, **files: Any) -> Path:
    """A tiny model's folder; `config={...}` changes `config.json`, `generation_config` likewise."""
    save(FAMILIES[name], folder)
    for file, changes in files.items():
        path = folder / f"{file}.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


def languages(checkpoint: Checkpoint) -> tuple[tuple[str, ...], tuple[str, ...]]:
    assert isinstance(checkpoint.config, TranslationModelConfig)
    return checkpoint.config.source_languages, checkpoint.config.target_languages


def problems_of(folder: Path) -> list[str]:
    with pytest.raises(CheckpointError) as caught:
        read_model(folder)
    return caught.value.problems


@pytest.mark.parametrize(
    ("family", "kind", "language", "before", "after"),
    [
        ("nllb", "NllbTokenizer", "eng_Latn", ["eng_Latn"], ["</s>"]),
        ("mbart", "MBartTokenizer", "en_XX", [], ["</s>", "en_XX"]),
        ("mbart-50", "MBart50Tokenizer", "en_XX", ["en_XX"], ["</s>"]),
    ],
)
def test_languages_stand_where_the_tokenizer_of_transformers_puts_them(
    tmp_path: Path, family: str, kind: str, language: str, before: list[str], after: list[str]
) -> None:
    folder = with_pieces(family, tmp_path, "sentencepiece.bpe.model", trained(), kind)
    theirs = getattr(transformers, kind).from_pretrained(folder, src_lang=language)
    tokens = theirs.convert_ids_to_tokens(theirs(TEXT).input_ids)
    assert tokens[: len(before)] == before and tokens[-len(after) :] == after
    checkpoint = read_model(folder)
    own = checkpoint.conventions.sources[language]
    prefix = own.source_prefix
    suffix = checkpoint.conventions.source_suffix + own.source_suffix
    assert (names(folder, prefix), names(folder, suffix)) == (before, after)
    assert len(languages(checkpoint)[0]) > 20


def test_prefixes_of_t5_are_those_of_its_text(tmp_path: Path) -> None:
    model = trained(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    folder = with_pieces("t5", tmp_path, "spiece.model", model, "T5Tokenizer")
    tasks: dict[str, dict[str, Any]] = {
        "summarization": {"prefix": "summarize: "},
        "translation_en_to_de": {"prefix": "translate English to German: ", "num_beams": 4},
        "translation_en_to_fr": {"prefix": "translate English to French: "},
    }
    change(folder / "config.json", task_specific_params=tasks)
    theirs = transformers.T5Tokenizer.from_pretrained(folder)
    checkpoint = read_model(folder)
    assert languages(checkpoint) == (("en", "und"), ("de", "fr", "und"))
    text = tokenizer_of(folder).encode(TEXT)
    for target, task in (("de", "translation_en_to_de"), ("fr", "translation_en_to_fr")):
        prefix = checkpoint.conventions.targets[target].source_prefix
        expected = theirs(tasks[task]["prefix"] + TEXT).input_ids
        assert [*prefix, *text, *checkpoint.conventions.source_suffix] == expected
    assert checkpoint.conventions.generation == {"num_beams": 4}


def with_pieces(family: str, folder: Path, file: str, model: bytes, kind: str) -> Path:
    """A folder with a sentencepiece model, also as `tokenizer.json` for `transformers`."""
    sizes = FAMILIES[family].sizes | {"vocab_size": 1400}
    save(replace(FAMILIES[family], sizes=sizes), folder)
    (folder / "tokenizer.json").unlink()
    (folder / file).write_bytes(model)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))
    (folder / "tokenizer.json").write_bytes(read_tokenizers(folder, []).source)  # type: ignore[union-attr]
    return folder


def tokenizer_of(folder: Path) -> Tokenizer:
    return Tokenizer(folder / "tokenizer.json")


def names(folder: Path, ids: tuple[int, ...]) -> list[str]:
    special = tokenizer_of(folder).special_tokens
    return [special[token_id] for token_id in ids]


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_folder_of_opus_mt_translates_as_in_transformers(tmp_path: Path) -> None:
    """Pieces of two languages, ids of one vocabulary."""
    sides = {"source.spm": trained(vocab_size=700), "target.spm": trained(model_type="bpe")}
    pieces = [piece for model in sides.values() for piece in read_piece_ids(model)]
    text = [piece for piece in pieces if piece not in ("<s>", "</s>", "<unk>")]
    vocabulary = {name: i for i, name in enumerate(dict.fromkeys(["</s>", "<unk>", *text]))}
    vocabulary["<pad>"] = pad = len(vocabulary)
    sizes = MARIAN | {"vocab_size": pad + 1, "pad_token_id": pad, "decoder_start_token_id": pad}
    generation = {"bad_words_ids": [[pad]], "max_length": 16, "num_beams": 2}
    folder = tmp_path / "opus-mt-en-fr"
    model = save(replace(FAMILIES["marian"], sizes=sizes, generation=generation), folder)
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    for name, content in sides.items():
        (folder / name).write_bytes(content)

    with pytest.warns(UserWarning, match="sacremoses"):
        tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    texts = [TEXT, "Two men are talking.", "Hello!", "A woman in a red dress sings."]
    rows = [tokenizer(text, return_tensors="pt").input_ids for text in texts]
    found = [model.generate(row, renormalize_logits=True)[0] for row in rows]
    expected = [tokenizer.decode(row, skip_special_tokens=True) for row in found]

    export_checkpoint(read_model(folder), tmp_path / "bundle", Precision.FP32)
    asked = ["--model", str(tmp_path / "bundle"), "--no-protect"]
    result = CliRunner().invoke(translate, asked, input="\n".join(texts), catch_exceptions=False)
    assert result.stdout.splitlines() == expected
    assert len({*expected}) > 2


def test_languages_of_marian(tmp_path: Path) -> None:
    many = read_model(folder_of("marian to many", tmp_path / "many"))
    assert languages(many) == (("eng",), ("deu", "fra"))
    assert many.conventions.targets["deu"] == AddedLanguageIds(source_prefix=(5,))
    named = folder_of("marian", tmp_path / "opus-mt-tc-big-sh-en")
    (named / "tokenizer_config.json").unlink()
    assert languages(read_model(named)) == (("sh",), ("en",))


def test_a_forced_language_is_the_only_target(tmp_path: Path) -> None:
    settings = {"forced_bos_token_id": 111}
    folder = folder_of("mbart-50", tmp_path, generation_config=settings)
    assert languages(read_model(folder)) == (("ar_AR", "en_XX", "ro_RO"), ("en_XX",))


def test_defaults_of_requests(tmp_path: Path) -> None:
    settings = {"num_beams": 5, "length_penalty": 0.6, "early_stopping": True, "max_length": 42}
    settings |= {"min_length": 10, "no_repeat_ngram_size": 3, "do_sample": False, "top_k": 7}
    checkpoint = read_model(folder_of("bart", tmp_path, generation_config=settings))
    assert checkpoint.conventions.generation == {
        "num_beams": 5,
        "length_penalty": 0.6,
        "early_stopping": True,
        "no_repeat_ngram_size": 3,
        "max_new_tokens": 40,
        "min_tokens": 8,
    }


def test_older_folders_say_it_all_in_one_file(tmp_path: Path) -> None:
    """And repeat their tables under every name."""
    folder = folder_of("bart", tmp_path, config={"num_beams": 4, "forced_bos_token_id": 0})
    (folder / "generation_config.json").unlink()
    weights = load_file(folder / "model.safetensors")
    shared = weights["model.shared.weight"]
    for name in ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"):
        weights[f"{name}.weight"] = shared
    torch.save({n: torch.tensor(w) for n, w in weights.items()}, folder / "pytorch_model.bin")
    expected = read_model(folder)
    (folder / "model.safetensors").unlink()
    found = read_model(folder)
    assert found.conventions.generation == {"num_beams": 4}
    assert found.conventions.prompt_prefix == (2, 0)
    assert_same_weights(found, expected)


@pytest.mark.parametrize(("name", "end"), [("bart", 2), ("mbart", 2), ("marian", 0), ("t5", None)])
def test_what_a_length_ends_ends_with_the_families_token(
    name: str, end: int | None, tmp_path: Path
) -> None:
    """Where nothing says so: a file of its own for generation says all."""
    folder = folder_of(name, tmp_path, generation_config={"forced_eos_token_id": None})
    assert read_model(folder).conventions.forced_eos is None
    own = transformers.AutoConfig.from_pretrained(folder)
    assert getattr(own, "forced_eos_token_id", None) == end
    (folder / "generation_config.json").unlink()
    assert read_model(folder).conventions.forced_eos == end
    change = {"forced_eos_token_id": None}
    assert read_model(folder_of_config(folder, change)).conventions.forced_eos is None


def folder_of_config(folder: Path, changes: dict[str, Any]) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


@pytest.mark.parametrize("beam", [[], *full([["--beam", "3"]])])
def test_a_vocabulary_padded_beyond_its_tokenizer_says_words_only(
    beam: list[str], tmp_path: Path
) -> None:
    """As T5's, of 32,128 rows for 32,100 tokens; these are most of what it would say."""
    family = FAMILIES["t5"]
    save(replace(family, sizes=family.sizes | {"vocab_size": 600}), tmp_path / "theirs")
    export_checkpoint(read_model(tmp_path / "theirs"), tmp_path / "ours", Precision.INT8)
    lines = "".join(f"w{i} w{i + 3} w{2 * i}\n" for i in range(12, 50))
    told = CliRunner().invoke(
        translate, ["--no-protect", "--model", str(tmp_path / "ours"), *beam], input=lines
    )
    assert told.exit_code == 0, told.output
    words = told.stdout.split()
    assert len(words) > 200
    assert {int(word.removeprefix("w")) for word in words} <= {*range(3, 120)}


def test_of_several_tokens_that_are_forced_last_the_first_is_taken(tmp_path: Path) -> None:
    settings = {"eos_token_id": [3, 2], "forced_eos_token_id": [3, 2]}
    found = read_model(folder_of("bart", tmp_path, generation_config=settings))
    assert found.conventions.forced_eos == 2


def test_models_without_their_head(tmp_path: Path) -> None:
    """Base models are saved without "model."."""
    folder = folder_of("m2m-100", tmp_path)
    expected = read_model(folder)
    weights = load_file(folder / "model.safetensors")
    positions = np.zeros((66, 32), np.float32)
    weights |= {f"model.{stack}.embed_positions.weights": positions for stack in ("encoder",)}
    path = folder / "model.safetensors"
    path.unlink()
    save_file({name.removeprefix("model."): weight for name, weight in weights.items()}, path)
    assert_same_weights(read_model(folder), expected)


def assert_same_weights(found: Checkpoint, expected: Checkpoint) -> None:
    assert found.weights.keys() == expected.weights.keys()
    for name in expected.weights:
        assert np.array_equal(found.weights[name], expected.weights[name])


WRONG: list[tuple[str, dict[str, Any], list[str]]] = [
    (
        "marian",
        {
            "config": {
                "activation_function": "tanh",
                "normalize_before": True,
                "scale_embedding": "yes",
            },
            "generation_config": {"bad_words_ids": [[3, -4]], "forced_eos_token_id": 7},
        },
        [
            "config.json: activation_function 'tanh' is not supported",
            "config.json: normalize_before True is not supported",
            "config.json: scale_embedding 'yes' must be bool",
            "generation_config.json: forced_eos_token_id 7 must be an eos_token_id",
            "generation_config.json: bad_words_ids [[3, -4]] must be lists of tokens below"
            " vocab_size 120",
        ],
    ),
    (
        "nllb",
        {
            "config": {"vocab_size": None, "d_model": 36.5, "decoder_start_token_id": 500},
            "generation_config": {"num_beam_groups": 2, "decoder_start_token_id": 500},
        },
        [
            "config.json: vocab_size is missing",
            "config.json: d_model 36.5 must be int",
            "generation_config.json: num_beam_groups 2 is not supported",
        ],
    ),
    (
        "t5",
        {"config": {"feed_forward_proj": "gated-tanh", "d_kv": 12, "num_heads": 0}},
        ["config.json: feed_forward_proj 'gated-tanh' is not supported"],
    ),
    (
        "longt5",
        {"config": {"encoder_attention_type": "transient-global"}},
        [
            "config.json: encoder_attention_type 'transient-global' is not supported: only local"
            " attention is",
        ],
    ),
    (
        "marian",
        {"generation_config": {"bad_words_ids": [[120]], "decoder_start_token_id": 500}},
        [
            "generation_config.json: bad_words_ids [[120]] must be lists of tokens below"
            " vocab_size 120",
            "generation_config.json: decoder_start_token_id 500 must be less than vocab_size 120",
        ],
    ),
]


@pytest.mark.parametrize(("name", "files", "problems"), WRONG)
def test_all_that_is_wrong_is_said_once(
    tmp_path: Path, name: str, files: dict[str, Any], problems: list[str]
) -> None:
    found = problems_of(folder_of(name, tmp_path, **files))
    assert len(found) == len(problems), found
    for problem in problems:
        assert sum(each.startswith(problem) for each in found) == 1, found


def test_tensors_are_all_there_and_all_used(tmp_path: Path) -> None:
    folder = folder_of("mbart", tmp_path)
    weights = load_file(folder / "model.safetensors")
    name = "model.decoder.layers.1.encoder_attn.q_proj"
    weights[f"{name}.lora_A.weight"] = weights.pop(f"{name}.weight")
    bias = "model.encoder.layers.0.fc1.bias"
    weights[bias] = weights[bias][:-1].copy()
    (folder / "model.safetensors").unlink()
    save_file(weights, folder / "model.safetensors")
    assert sorted(problems_of(folder)) == [
        f"{name}.lora_A.weight is not expected",
        f"{name}.weight is missing",
        f"{bias} has shape [47], expected [48]",
    ]


def test_a_folder_becomes_a_bundle_that_translates(tmp_path: Path) -> None:
    folder = folder_of("nllb", tmp_path / "tiny-nllb", generation_config={"max_length": 9})
    bundle = tmp_path / "bundle"
    arguments = [str(folder), "-o", str(bundle), "--precision", "int8"]
    result = CliRunner().invoke(export, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    card = (bundle / "README.md").read_text()
    assert "Hugging Face folder `tiny-nllb`" in card and "m2m_100" in card
    asked = ["--no-protect", "--model", str(bundle), "--source", "en", "--target", "fr"]
    text = "w20 w31 w44\n"
    french = CliRunner().invoke(translate, asked, input=text, catch_exceptions=False)
    assert french.exit_code == 0, french.stderr
    assert 1 <= len(french.stdout.split()) <= 7  # 9 with </s> and the language's token
    asked[-1] = "ace_Arab"
    other = CliRunner().invoke(translate, asked, input=text, catch_exceptions=False)
    assert other.stdout != french.stdout
    assert open_bundle(bundle).manifest.tokens.with_languages(
        "eng_Latn", "fra_Latn"
    ).prompt_prefix == (
        2,
        112,
    )
