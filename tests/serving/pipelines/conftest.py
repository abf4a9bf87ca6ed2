"""The tokenizer all pipeline tests share."""

import pytest

from serving.text.tokenizer import Tokenizer
from tests.serving.pipelines.fakes import byte_tokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return byte_tokenizer(tmp_path_factory.mktemp("tokenizer"))
