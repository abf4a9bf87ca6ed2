"""Chat templates under names: the one for tools is used where a chat has tools, as `transformers`
does it, and others are named.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from export.readers.common.chat_templates import merge_templates
from export.readers.hugging_face.families import read_checkpoint
from serving.text.chat_renderer import render
from tests.export.readers.hugging_face.changing import change
from tests.export.readers.hugging_face.language_models import random_model, save

USUAL = (
    "{% set mark = '#' %}\n"
    "{% for message in messages %}\n"
    "  {{- mark }}{{ message['content'] }}  \n"
    "{% endfor %}\n"
    "  {%- if add_generation_prompt %}\n>{% endif %}\n"
)
TOOLS = (
    "\n  {%- macro shown(tool) %}{{ tool | tojson }}{% endmacro %}\n"
    "{% for tool in tools %}{{ shown(tool) }} {% endfor %}\n"
    "{{ messages[0]['content'] }}\n   "
)
SPACES = ["", "\n", "  \n  ", "\n\n"]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
TALK = [{"role": "user", "content": "Well?"}]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(random_model("smollm2"), tmp_path_factory.mktemp("model"))


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    for path in saved.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    change(tmp_path / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    return tmp_path


def in_config(folder: Path, templates: dict[str, str]) -> None:
    listed = [{"name": name, "template": text} for name, text in templates.items()]
    change(folder / "tokenizer_config.json", chat_template=listed)


def in_files(folder: Path, templates: dict[str, str]) -> None:
    (folder / "additional_chat_templates").mkdir()
    for name, text in templates.items():
        path = f"additional_chat_templates/{name}.jinja"
        (folder / ("chat_template.jinja" if name == "default" else path)).write_text(text)


@pytest.mark.parametrize("store", [in_config, in_files])
@pytest.mark.parametrize("tools", [[TOOL], None])
def test_the_template_for_tools_is_used_as_theirs(store: Any, tools: Any, folder: Path) -> None:
    store(folder, {"default": USUAL, "tool_use": TOOLS})
    found = read_checkpoint(folder)
    theirs = AutoTokenizer.from_pretrained(folder).apply_chat_template(
        TALK, tools=tools, tokenize=False, add_generation_prompt=True
    )

    template = found.conventions.chat_template
    assert template is not None
    variables = {"messages": TALK, "tools": tools, "add_generation_prompt": True}
    assert render(template, variables) == theirs
    assert found.notes == ()


@pytest.mark.parametrize("before", SPACES)
@pytest.mark.parametrize("after", SPACES)
def test_spaces_around_templates_stay(before: str, after: str) -> None:
    usual, for_tools = f"{before}usual{after}", f"{before}{{% if 1 %}}tools{{% endif %}}{after}"
    joined = merge_templates({"default": usual, "tool_use": for_tools}, [])
    assert joined is not None
    assert render(joined, {"tools": None}) == render(usual, {})
    assert render(joined, {"tools": [TOOL]}) == render(for_tools, {})


@pytest.mark.parametrize("store", [in_config, in_files])
def test_templates_for_other_uses_are_named(store: Any, folder: Path) -> None:
    store(folder, {"default": USUAL, "rag": "documents", "plan": "plans"})
    found = read_checkpoint(folder)
    assert found.conventions.chat_template == USUAL
    assert found.notes == ("chat templates are left out: plan, rag",)


def test_a_file_counts_before_the_configuration(folder: Path) -> None:
    change(folder / "tokenizer_config.json", chat_template="in the configuration")
    (folder / "chat_template.jinja").write_text("{{ 'in a file' }}")
    assert read_checkpoint(folder).conventions.chat_template == "{{ 'in a file' }}"


def test_templates_that_are_none(folder: Path) -> None:
    cases: list[Any] = [[{"name": 3, "template": "a"}], [{"template": "a"}], ["a"], 7, {}]
    for wrong in cases:
        known = json.loads((folder / "tokenizer_config.json").read_text())
        (folder / "tokenizer_config.json").write_text(json.dumps(known | {"chat_template": wrong}))
        assert read_checkpoint(folder).conventions.chat_template is None
