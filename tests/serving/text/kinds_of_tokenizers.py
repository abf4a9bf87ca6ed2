"""One small tokenizer of each kind that is served."""

import functools
from pathlib import Path
from tempfile import TemporaryDirectory

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from export.readers.common.tokenizers import tokenizer_from_sentencepiece
from export.readers.common.word_tokenizers import tokenizer_from_words
from serving.text.tokenizer import Tokenizer
from tests.export.readers.common.sentencepiece_models import GEMMA, LLAMA, trained
from tests.serving.text.tokenizers_for_tests import write_byte_tokenizer

TEXTS = ("a black dog in the snow", "un chien noir dans la neige", "l'été à Noël (froid), 😀")
SPECIAL = ["<s>", "</s>", "<unk>"]
PARTS = "black@@ er black dog the chien été l'@@ in a ( d@@ o@@ g@@"


def write_metaspace(path: Path) -> None:
    """As the library's own trainers make them for T5 and XLM-R."""
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Replace(tokenizers.Regex(" {2,}"), " ")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 5, trainer)
    tokenizer.save(str(path))


def write_word_piece(path: Path) -> None:
    words = [*SPECIAL, "black", "##er", "dog", "the", "##s", "in"]
    ids = {word: i for i, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(models.WordPiece(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(str(path))


def write_plain_words(path: Path) -> None:
    ids = {word: i for i, word in enumerate([*SPECIAL, "black", "dog", "the", "in"])}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(str(path))


WRITERS = {
    "byte-level": lambda path: write_byte_tokenizer(path, TEXTS * 5, 340),
    "unigram": lambda path: path.write_bytes(tokenizer_from_sentencepiece(trained())),
    "spaces behind": lambda path: path.write_bytes(
        tokenizer_from_sentencepiece(trained(treat_whitespace_as_suffix=True))
    ),
    "Llama": lambda path: path.write_bytes(tokenizer_from_sentencepiece(trained(**LLAMA))),
    "Gemma": lambda path: path.write_bytes(tokenizer_from_sentencepiece(trained(**GEMMA))),
    "metaspace": write_metaspace,
    "subword-nmt": lambda path: path.write_bytes(
        tokenizer_from_words([*SPECIAL, *PARTS.split()], "<unk>", SPECIAL, codes=None)
    ),
    "word pieces": write_word_piece,
    "plain words": write_plain_words,
}


def tokenizer_of(kind: str, folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    path.write_bytes(_file_of(kind))
    return Tokenizer(path)


@functools.cache
def _file_of(kind: str) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        WRITERS[kind](path)
        return path.read_bytes()
