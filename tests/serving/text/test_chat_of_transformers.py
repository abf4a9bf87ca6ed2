"""Chat templates: the text that transformers renders, and its tokens."""

from pathlib import Path
from typing import Any

import pytest
import tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import render_jinja_template

from serving.text.chat_template import Chat
from serving.text.tokenizer import Tokenizer
from tests.serving.text.chat_templates import CHATML, LLAMA_2, LLAMA_3, QWEN_3, TEMPLATES
from tests.serving.text.chats import ASKED, SPECIAL, TOLD, chat_tokenizer, template_of

CONVERSATIONS = (ASKED, TOLD, TOLD[1:], TOLD[:3], TOLD[1:3], (TOLD[0], *ASKED, *ASKED))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("chat") / "tokenizer.json"
    chat_tokenizer().save(str(path))
    return Tokenizer(path)


def reference(source: str, chat: Chat) -> str:
    rendered = render_jinja_template(
        [list(chat.messages)],
        chat_template=source,
        add_generation_prompt=chat.opens_answer,
        continue_final_message=chat.continues_last,
        bos_token="<s>",
        eos_token="</s>",
        **chat.variables,
    )
    return str(rendered[0][0])


def outcome(render: Any, *arguments: Any) -> str:
    """The text; None where the messages are refused."""
    try:
        return str(render(*arguments))
    except Exception:
        return "refused"


@pytest.mark.parametrize("source", TEMPLATES.values(), ids=TEMPLATES)
def test_the_text_is_that_of_transformers(source: str, tokenizer: Tokenizer) -> None:
    template = template_of(source, tokenizer)
    chats = [Chat(m, opens_answer=opens) for m in CONVERSATIONS for opens in (True, False)]
    chats.append(Chat(ASKED, variables={"enable_thinking": False, "date_string": "1 May 2026"}))

    texts = [outcome(template.text, chat) for chat in chats]

    assert texts == [outcome(reference, source, chat) for chat in chats]
    assert set(texts) > {"refused"} or "refused" not in texts


@pytest.mark.parametrize("source", [CHATML, LLAMA_2, LLAMA_3, QWEN_3])
@pytest.mark.parametrize("content", ["It was", "It was ", "a\n"])
def test_an_answer_that_goes_on(source: str, content: str, tokenizer: Tokenizer) -> None:
    messages = (*ASKED, {"role": "assistant", "content": content})
    chat = Chat(messages, opens_answer=False, continues_last=True)

    assert template_of(source, tokenizer).text(chat) == reference(source, chat)


def spaced_tokenizer() -> tokenizers.Tokenizer:
    """Letters, and a mark for the space before a word, as SentencePiece has them."""
    letters = sorted({*"".join(TEMPLATES.values()), *str(TOLD), "é"} - {" "})
    names = ["<unk>", "<s>", "</s>", "▁", *letters, "▁d", "▁S", "er", "▁user"]
    scores = [(name, -1.0 / len(name)) for name in names]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(scores, unk_id=0))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(
        prepend_scheme="first", split=False
    )
    tokenizer.decoder = tokenizers.decoders.Metaspace(prepend_scheme="first", split=False)
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>", *SPECIAL])
    return tokenizer


@pytest.mark.parametrize("source", TEMPLATES.values(), ids=TEMPLATES)
@pytest.mark.parametrize("make_tokenizer", [chat_tokenizer, spaced_tokenizer])
def test_the_prompt_is_that_of_transformers(
    make_tokenizer: Any, source: str, tmp_path: Path
) -> None:
    """Token for token: a start token only where the template writes one."""
    theirs = PreTrainedTokenizerFast(
        tokenizer_object=make_tokenizer(), bos_token="<s>", eos_token="</s>", chat_template=source
    )
    make_tokenizer().save(str(tmp_path / "tokenizer.json"))
    messages = list(TOLD[1:])

    template = template_of(source, Tokenizer(tmp_path / "tokenizer.json"))

    assert list(template.prompt_ids(Chat(tuple(messages)))) == theirs.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False
    )
