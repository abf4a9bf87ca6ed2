"""Every end that a model's files name ends its texts, or a note says which does not."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from export.readers.reading import read_model
from tests.export.readers.gguf.files import write_gguf
from tests.export.readers.hugging_face import translators
from tests.export.readers.hugging_face.changing import change
from tests.export.readers.hugging_face.language_models import BOS, EOS, random_model, save
from tests.serving.text.chat_templates import CHATML, LLAMA_2, LLAMA_3

ADDED = ["<|im_start|>", "<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|endoftext|>"]
IDS = {token: number for number, token in enumerate(ADDED, 259)}  # after the bytes
LAST = 266  # of the model; the tokenizer may have more
END_OF_TURN = (
    "{% for m in messages %}<start_of_turn>{{ m['role'] }}\n{{ m['content'] }}<end_of_turn>\n"
    "{% endfor %}"
)
IN_PARTS = (
    "{% for m in messages %}{% for part in m['content'] %}{{ part['text'] }}{% endfor %}<|eot_id|>"
    "{% endfor %}"
)
PLAIN = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n\n{% endfor %}"
SAID = "{% for m in messages %}### {{ m['role'] }}\n{{ m['content'] }} ###END\n{% endfor %}"
BROKEN = "{{ raise_exception('no') }}"

# tokenizer's end, config.json, generation_config.json, template -> stop tokens, what a note names
CASES: list[tuple[str, Any, Any, Any, str | None, list[int | str], str]] = [
    ("one end", "</s>", EOS, EOS, None, [EOS], ""),
    ("the tokenizer's differs", "<|im_end|>", EOS, None, None, ["<|im_end|>", EOS], ""),
    ("the tokenizer's, in an object", {"content": "<|im_end|>"}, EOS, EOS, None,
     ["<|im_end|>", EOS], ""),
    ("all three differ", "<|im_end|>", EOS, 5, None, ["<|im_end|>", 5, EOS], ""),
    ("lists", "</s>", [EOS, 7], [6, EOS], None, [EOS, 6, 7], ""),
    ("none of the configuration's", "<|im_end|>", None, None, None, ["<|im_end|>"], ""),
    ("none of the tokenizer's", None, EOS, [EOS, 9], None, [EOS, 9], ""),
    ("-1 is no end", "</s>", -1, None, None, [EOS], ""),
    ("a template's", "</s>", EOS, EOS, CHATML, [EOS, "<|im_end|>"], ""),
    ("a template's and the tokenizer's", "<|im_end|>", EOS, EOS, CHATML, ["<|im_end|>", EOS], ""),
    ("llama 3", "<|endoftext|>", IDS["<|endoftext|>"], None, LLAMA_3,
     ["<|endoftext|>", "<|eot_id|>"], ""),
    ("llama 2 ends with eos_token", "</s>", EOS, None, LLAMA_2, [EOS], ""),
    ("eos_token is the tokenizer's", "<|im_end|>", EOS, None, LLAMA_2, ["<|im_end|>", EOS], ""),
    ("gemma", "</s>", EOS, EOS, END_OF_TURN, [EOS, "<end_of_turn>"], ""),
    ("contents in parts", "</s>", EOS, EOS, IN_PARTS, [EOS, "<|eot_id|>"], ""),
    ("a template that says none", "</s>", EOS, EOS, PLAIN, [EOS], ""),
    ("a template that fails", "</s>", EOS, EOS, BROKEN, [EOS], ""),
    ("words of a template", "</s>", EOS, EOS, SAID, [EOS], "###END"),
    ("no token of the tokenizer", "<|other|>", EOS, EOS, None, [EOS], "<|other|>"),
    ("no token of the model, in config.json", "</s>", LAST + 1, EOS, None, [EOS], "267"),
    ("no token of the model", "</s>", EOS, [EOS, 50256], None, [EOS], "50256"),
]  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save(random_model("llama"), tmp_path_factory.mktemp("model"))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens(ADDED)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_every_end_of_a_folder(case: Any, saved: Path, tmp_path: Path) -> None:
    _, end, in_config, in_generation, template, expected, named = case
    for path in saved.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    said = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end, "bos_token": "<s>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(said | {"chat_template": template}))
    change(tmp_path / "config.json", eos_token_id=in_config)
    change(tmp_path / "generation_config.json", eos_token_id=in_generation)
    found = read_model(tmp_path)
    stop = [IDS.get(each, each) if isinstance(each, str) else each for each in expected]
    assert [*found.conventions.stop] == stop
    assert found.config.eos_id == stop[0] and found.config.bos_id == BOS
    assert len(found.notes) == bool(named)
    assert named in "; ".join(found.notes)


def test_the_beginning_that_templates_write_is_the_tokenizers(saved: Path, tmp_path: Path) -> None:
    for path in saved.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    change(tmp_path / "tokenizer_config.json", bos_token="<|im_start|>", eos_token="</s>")
    assert read_model(tmp_path).config.bos_id == IDS["<|im_start|>"]


def test_every_end_of_a_translator(tmp_path: Path) -> None:
    """A source ends with what its tokenizer writes, whatever the configuration names."""
    translators.save(translators.FAMILIES["t5"], tmp_path)
    change(tmp_path / "tokenizer_config.json", eos_token="w9")
    change(tmp_path / "generation_config.json", eos_token_id=[1, 8])
    change(tmp_path / "config.json", eos_token_id=7)
    found = read_model(tmp_path).conventions
    assert found.stop == (9, 1, 8, 7)
    assert found.source_suffix == (9,)


GGUF: list[tuple[str, dict[str, Any], list[int]]] = [
    ("eos", {}, [2]),
    ("end of a turn", {"eot_token_id": 5}, [2, 5]),
    ("end of a message", {"eot_token_id": 5, "eom_token_id": 6}, [2, 5, 6]),
    ("a known token", {"5": "<|im_end|>"}, [2, 5]),
    ("a template's", {"6": "<|over|>", "chat_template": CHATML.replace("im_end", "over")}, [2, 6]),
    ("several", {"5": "<|eot_id|>", "eom_token_id": 7, "chat_template": LLAMA_3}, [2, 7, 5]),
]


@pytest.mark.parametrize("case", GGUF, ids=lambda case: case[0])
def test_every_end_of_a_gguf_file(case: Any, tmp_path: Path) -> None:
    _, fields, expected = case
    tokens = ["a", "b", "ab", *(f"<{i}>" for i in range(3, 267))]
    for key in [key for key in fields if key.isdecimal()]:
        tokens[int(key)] = fields[key]
    keys: dict[str, Any] = {"tokens": tokens, "token_type": [3] * 267}
    keys |= {key: value for key, value in fields.items() if not key.isdecimal()}
    template = keys.pop("chat_template", None)
    named = {f"tokenizer__ggml__{key}": value for key, value in keys.items()}
    if template is not None:
        named["tokenizer__chat_template"] = template
    path = write_gguf(random_model("llama"), tmp_path / "a.gguf", **named)
    assert [*read_model(path).conventions.stop] == expected
