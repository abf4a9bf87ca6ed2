"""Small tokenizers for tests."""

from pathlib import Path

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

SPECIAL_TOKENS = ["<pad>", "<s>", "</s>"]


def byte_level_bpe(texts: tuple[str, ...] = (), vocab_size: int = 259) -> tokenizers.Tokenizer:
    """Return a BPE of which every byte is a token; `texts` teach it some merges on top."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def write_byte_tokenizer(path: Path, texts: tuple[str, ...] = (), vocab_size: int = 259) -> Path:
    byte_level_bpe(texts, vocab_size).save(str(path))
    return path


def write_failing_tokenizer(path: Path) -> Path:
    """The same, but its pattern takes too many steps for forty letters a: the library panics."""
    write_byte_tokenizer(path)
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    pattern = pre_tokenizers.Split(Regex(r"^(([a-z])+.)+[A-Z]([a-z])+$"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pattern, tokenizer.pre_tokenizer])
    tokenizer.save(str(path))
    return path


FAILS_AT = "a" * 40
