"""Files of CTranslate2 that cannot be read are refused with what is wrong with them."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ctranslate2.specs import common_spec, model_spec, transformer_spec

from export.readers.common.cursor import MalformedFile
from export.readers.ctranslate2.container import read_model_file
from export.readers.reading import read_model
from models.checkpoint import Checkpoint, CheckpointError
from tests.export.readers.ctranslate2.specs import list_tokens, save_translator
from tests.tiny import tiny_checkpoint


def write_file(version: int, *variables: bytes, aliases: bytes = b"\0\0\0\0") -> Any:
    data = struct.pack("<I", version) + write_string("TransformerSpec") + struct.pack("<I", 7)
    data += struct.pack("<I", len(variables)) + b"".join(variables) + aliases
    return np.frombuffer(data, np.uint8)


def write_string(text: str) -> bytes:
    return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"


def write_variable(
    name: str, shape: tuple[int, ...], kind: int, data: bytes, size: int | None = None
) -> bytes:
    head = write_string(name) + struct.pack(f"<B{len(shape)}I", len(shape), *shape)
    return head + struct.pack("<BI", kind, len(data) if size is None else size) + data


ONES = np.ones((2, 3), np.float32).tobytes()
LEVELS = write_variable("w", (2, 3), 1, bytes(6))
MALFORMED: dict[str, tuple[Any, str]] = {
    "cut short": (write_file(6, write_variable("w", (2, 3), 0, ONES))[:-9], "is cut short"),
    "of the future": (write_file(7), "begins with 7: binary versions 2 to 6"),
    "the first version": (write_file(1), "binary version 1"),
    "a size that does not fit": (
        write_file(6, write_variable("w", (2, 4), 0, ONES)),
        r"has a variable w of shape \[2, 4\] in 24 bytes, expected 32",
    ),
    "a size beyond the file": (
        write_file(6, write_variable("w", (2**30, 2), 1, b"", 2**31)),
        "the data of w would need 2147483648 bytes",
    ),
    "an unknown type": (
        write_file(6, write_variable("w", (2, 3), 9, ONES)),
        "of type 9, which is not known",
    ),
    "one name twice": (
        write_file(6, *[write_variable("w", (2, 3), 0, ONES)] * 2),
        "two variables called w",
    ),
    "too many variables": (
        np.frombuffer(write_file(6)[:-8].tobytes() + b"\xff" * 8, np.uint8),
        "has 4294967295 variables",
    ),
    "scales of another number": (
        write_file(6, LEVELS, write_variable("w_scale", (3,), 0, bytes(12))),
        "with scales of shape",
    ),
    "scales of zero": (
        write_file(6, LEVELS, write_variable("w_scale", (2,), 0, bytes(8))),
        "scales that are no positive numbers",
    ),
    "zero points": (
        write_file(6, LEVELS, write_variable("w_zero", (2,), 3, bytes(8))),
        "AWQ",
    ),
    "bytes at the end": (np.append(write_file(6), np.uint8(0)), "has 1 bytes after"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_files(name: str) -> None:
    content, problem = MALFORMED[name]
    with pytest.raises(MalformedFile, match=problem):
        read_model_file(content)


def test_old_versions_are_read_as_ctranslate2_reads_them() -> None:
    def write_old(name: str, shape: tuple[int, ...], size: int, data: bytes) -> bytes:
        head = write_string(name) + struct.pack(f"<B{len(shape)}I", len(shape), *shape)
        return head + struct.pack("<BI", size, len(data) // size) + data

    levels = np.array([[1000, -500]], np.int16)
    variables = [
        write_old("w", (1, 2), 2, levels.tobytes()),
        write_old("b", (2,), 4, np.ones(2, np.float32).tobytes()),
        write_old("num_heads", (), 1, b"\x04"),
    ]
    model = read_model_file(write_file(2, *variables, aliases=b""))
    assert model.tensors["w"].read().tolist() == [[1.0, -0.5]]  # of levels to 1000
    assert model.tensors["b"].read().tolist() == [1.0, 1.0]
    assert model.scalars == {"num_heads": 4}


def test_aliases_have_the_scales_of_their_variables() -> None:
    scale = write_variable("w_scale", (2,), 0, np.array([2, 4], np.float32).tobytes())
    levels = write_variable("w", (2, 3), 1, np.full((2, 3), 4, np.int8).tobytes())
    aliases = struct.pack("<I", 1) + write_string("v") + write_string("w")
    model = read_model_file(write_file(6, levels, scale, aliases=aliases))
    assert model.tensors["v"].read().tolist() == [[2, 2, 2], [1, 1, 1]]


@pytest.fixture
def tiny(tmp_path: Path) -> Checkpoint:
    return tiny_checkpoint("transformer", tmp_path / "tiny")


def find_problems(folder: Path) -> list[str]:
    with pytest.raises(CheckpointError) as caught:
        read_model(folder)
    return caught.value.problems


def save(checkpoint: Checkpoint, folder: Path, **options: Any) -> Path:
    save_translator(checkpoint, folder, add_source_eos=True, **options)
    (folder / "tokenizer.json").write_text(checkpoint.tokenizer)
    return folder


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no configuration": (lambda f: (f / "config.json").unlink(), "config.json is missing"),
    "no vocabulary": (
        lambda f: (f / "shared_vocabulary.json").unlink(),
        "source_vocabulary.txt is missing",
    ),
    "a short vocabulary": (
        lambda f: (f / "shared_vocabulary.json").write_text('["<s>", "</s>"]'),
        "shared_vocabulary.json has 2 tokens, the model's table has 259",
    ),
    "a vocabulary of numbers": (
        lambda f: (f / "shared_vocabulary.json").write_text("[1]"),
        "it is no list of tokens",
    ),
    "no end": (
        lambda f: change_config(f, eos_token="<end>"),
        "eos_token '<end>' is not in the vocabulary",
    ),
    "targets that begin with a language": (
        lambda f: change_config(f, decoder_start_token=None),
        "models whose targets begin with a language are not supported",
    ),
    "an empty model": (lambda f: (f / "model.bin").write_bytes(b""), ""),
}


def change_config(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_folders(tmp_path: Path, tiny: Checkpoint, name: str) -> None:
    damage, problem = DAMAGES[name]
    folder = save(tiny, tmp_path / "ct2")
    damage(folder)
    assert any(problem in line for line in find_problems(folder))


def test_vocabularies_of_words_need_no_tokenizer(tmp_path: Path, tiny: Checkpoint) -> None:
    words = ["<unk>", "<s>", "</s>", *(f"w{i}" for i in range(3, 259))]
    folder = save_translator(tiny, tmp_path / "ct2", vocabulary=words)
    (folder / "shared_vocabulary.json").unlink()
    (folder / "shared_vocabulary.txt").write_text("\r\n".join(words) + "\r\n")
    assert read_model(folder).tokenizer.count('"w10</w>"') == 1


def test_models_of_many_languages_are_refused(tmp_path: Path, tiny: Checkpoint) -> None:
    words = ["<unk>", "<s>", "</s>", "eng_Latn", "fra_Latn", *(f"w{i}" for i in range(5, 259))]
    folder = save_translator(tiny, tmp_path / "ct2", vocabulary=words)
    assert "begin with a language (eng_Latn, fra_Latn ...)" in " ".join(find_problems(folder))


def test_joiners_of_opennmts_tokenizer_are_refused(tmp_path: Path, tiny: Checkpoint) -> None:
    words = ["<unk>", "<s>", "</s>", *(f"w{i}￭" for i in range(3, 259))]
    folder = save_translator(tiny, tmp_path / "ct2", vocabulary=words)
    assert "whose joiners (￭) are not supported" in " ".join(find_problems(folder))


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path, tiny: Checkpoint) -> None:
    folder = save(tiny, tmp_path / "ct2")
    tokens = list_tokens(tiny.tokenizer)
    (folder / "shared_vocabulary.json").write_text(json.dumps(tokens[:2] + tokens[:1:-1]))
    assert "tokenizer.json has another id for" in " ".join(find_problems(folder))


@pytest.mark.parametrize(
    ("options", "feature"),
    [
        ({"with_relative_position": True}, "relative positions of Shaw et al. 2018"),
        ({"num_source_embeddings": 2}, "source features"),
        ({"activation": common_spec.Activation.Tanh}, "the activation 5"),
    ],
)
def test_features_that_no_architecture_has_are_refused_by_name(
    tmp_path: Path, options: dict[str, Any], feature: str
) -> None:
    spec = transformer_spec.TransformerSpec.from_config(1, 2, **options)
    for name, value in spec.variables().items():
        if value is None:
            fill(spec, name)
    model_spec.LayerSpec.validate(spec)
    spec.optimize()
    spec._serialize(str(tmp_path / "model.bin"))
    spec.config.save_as_json(tmp_path / "config.json")
    words = ["<unk>", "<s>", "</s>", "a"]
    (tmp_path / "shared_vocabulary.json").write_text(json.dumps(words))
    assert feature in " ".join(find_problems(tmp_path))


def fill(spec: Any, name: str) -> None:
    """Set a weight to something of a likely shape."""
    *scopes, last = name.split("/")
    for scope in scopes:
        part, _, number = scope.rpartition("_")
        has_scope = hasattr(spec, scope)
        spec = getattr(spec, scope) if has_scope else getattr(spec, part)[int(number)]
    setattr(spec, last, np.ones((4, 4) if last == "weight" else (4,), np.float32))


def write_empty_model(folder: Path, specification: str) -> None:
    data = struct.pack("<I", 6) + write_string(specification) + struct.pack("<III", 3, 0, 0)
    (folder / "model.bin").write_bytes(data)


def test_other_kinds_are_refused_by_their_names(tmp_path: Path) -> None:
    write_empty_model(tmp_path, "Wav2Vec2Spec")
    assert find_problems(tmp_path) == [
        "model.bin is of Wav2Vec2Spec:"
        " TransformerSpec, TransformerDecoderSpec and WhisperSpec are supported"
    ]


def test_a_whisper_without_weights_is_refused(tmp_path: Path) -> None:
    write_empty_model(tmp_path, "WhisperSpec")
    assert {
        "config.json is missing",
        "decoder/embeddings/weight is missing",
        "encoder/conv1/weight is missing",
        "model.bin: num_heads of encoder and decoder (0) must be one number",
    } <= {*find_problems(tmp_path)}
