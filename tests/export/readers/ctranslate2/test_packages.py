"""Packages of Argos Translate translate as it does, with ctranslate2 and sentencepiece."""

import zipfile
from pathlib import Path
from typing import Any

import pytest
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer

from export.bundling.decoding import decode
from export.readers.reading import read_model
from models.checkpoint import CheckpointError
from serving.requests.parameters import BeamParams
from serving.requests.request import GenerationRequest
from tests.export.readers.ctranslate2.comparing import NUM_NEW, export_model, open_translator
from tests.export.readers.ctranslate2.packages import pack, write_package

SENTENCES = ("A dog runs.", "Two men  are playing football!", "Où est la gare ? 東京", "")


def translate_as_argos(package: Path, sentences: tuple[str, ...], prefix: str) -> list[str]:
    """Return what argostranslate/translate.py makes of sentences: apply_packaged_translation."""
    processor = SentencePieceProcessor(model_file=str(package / "sentencepiece.model"))
    results = open_translator(package / "model").translate_batch(
        [processor.encode(sentence, out_type=str) for sentence in sentences],
        target_prefix=[[prefix]] * len(sentences) if prefix else None,
        beam_size=4,
        length_penalty=0.2,
        max_decoding_length=NUM_NEW + bool(prefix),  # which counts as a token
        min_decoding_length=0,
    )
    values = []
    for result in results:
        value = processor.decode_pieces(result.hypotheses[0]).replace("▁", " ").replace("_", " ")
        value = value.removeprefix(prefix)
        values.append(value.removeprefix(" "))
    return values


@pytest.mark.parametrize("prefix", ["", ">>fra<<"])
@pytest.mark.parametrize("is_packed", [False, True], ids=["folder", "archive"])
def test_bundles_translate_as_argos_translate(tmp_path: Path, is_packed: bool, prefix: str) -> None:
    package = write_package(tmp_path, target_prefix=prefix)
    bundle = export_model(pack(package) if is_packed else package, tmp_path / "bundle")
    tokens, generation = bundle.manifest.tokens, bundle.manifest.generation
    assert generation == {"num_beams": 4, "length_penalty": 0.2}
    tokenizer = Tokenizer.from_file(str(bundle.folder / "tokenizer.json"))
    sentences = SENTENCES[:-1]  # an empty one never reaches a model
    requests = [
        GenerationRequest(
            str(number),
            (*tokenizer.encode(sentence, add_special_tokens=False).ids, *tokens.source_suffix),
            beam=BeamParams(4, length_penalty=0.2),
            max_new_tokens=NUM_NEW,
        )
        for number, sentence in enumerate(sentences)
    ]
    ours = [tokenizer.decode(ids).replace("_", " ") for ids in decode(bundle, requests)]
    assert ours == translate_as_argos(package, sentences, prefix)


def test_languages_card_and_precision_come_from_the_package(tmp_path: Path) -> None:
    checkpoint = read_model(pack(write_package(tmp_path, "en", "pb")))
    config: Any = checkpoint.config
    assert (config.source_languages, config.target_languages) == (("en",), ("pt-BR",))
    assert checkpoint.bits == 8
    card = checkpoint.files["README.md"].decode()
    assert "version 1.0" in card
    assert "Licence: CC0, trained with OPUS." in card


def test_packages_with_words_of_moses_are_refused_by_name(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    (package / "sentencepiece.model").rename(package / "bpe.model")
    with pytest.raises(CheckpointError) as caught:
        read_model(package)
    assert caught.value.problems == [
        "bpe.model: words of Moses with BPE are not supported, sentencepiece.model is"
    ]


def test_nothing_of_an_archive_is_written_anywhere(tmp_path: Path) -> None:
    archive = pack(write_package(tmp_path / "packages"))
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("../../escaped.txt", "x")
        file.writestr("/escaped.txt", "x")
    before = sorted(tmp_path.rglob("*"))
    read_model(archive)
    assert sorted(tmp_path.rglob("*")) == before


def test_archives_that_grow_a_thousandfold_are_refused(tmp_path: Path) -> None:
    archive = tmp_path / "translate-en_fr-1_0.argosmodel"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a/metadata.json", "{}")
        file.writestr("a/model/model.bin", bytes(2**26))
    with pytest.raises(CheckpointError, match="more than 100 times its own"):
        read_model(archive)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"no archive", "is no sound zip archive"),
        (b"", "is no sound zip archive"),
    ],
)
def test_archives_that_are_none(tmp_path: Path, content: bytes, problem: str) -> None:
    archive = tmp_path / "translate-en_fr-1_0.argosmodel"
    archive.write_bytes(content)
    with pytest.raises(CheckpointError, match=problem):
        read_model(archive)


def test_packages_of_other_kinds_are_refused(tmp_path: Path) -> None:
    package = write_package(tmp_path, type="sbd")
    with pytest.raises(CheckpointError, match=r"metadata\.json: type 'sbd' is not supported"):
        read_model(package)
