"""Models of whole words, and a corpus in which source word n is always translated by target word n.

Words are `s0`, `s1` ... and `t0`, `t1` ...; `name7` is on both sides.
"""

from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers

from models.checkpoint import TOKENIZER_FILE
from tests.tiny import SPECIAL_TOKENS, tiny_checkpoint

NUM_WORDS, NUM_NAMES = 120, 10
WORDS = [
    *SPECIAL_TOKENS,
    *(f"s{i}" for i in range(NUM_WORDS)),
    *(f"t{i}" for i in range(NUM_WORDS)),
    *(f"name{i}" for i in range(NUM_NAMES)),
    *"0123456789.!",
]
ID_OF = {word: number for number, word in enumerate(WORDS)}


def worded_checkpoint(architecture: str, folder: Path, **changes: Any) -> Path:
    checkpoint = tiny_checkpoint(architecture, folder, vocab_size=len(WORDS), **changes)
    tokenizer = Tokenizer(models.WordLevel(ID_OF, unk_token=SPECIAL_TOKENS[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.save(str(checkpoint.folder / TOKENIZER_FILE))
    return checkpoint.folder


def corpus(path: Path, num_pairs: int = 600) -> Path:
    """Words of a sentence come in any order; those of low numbers are frequent."""
    random = np.random.default_rng(1)
    lines = []
    for _ in range(num_pairs):
        numbers = (NUM_WORDS * random.random(random.integers(2, 9)) ** 2).astype(int)
        end = random.choice([".", "!", f"name{random.integers(NUM_NAMES)} ."])
        target = " ".join(f"t{i}" for i in random.permutation(numbers))
        lines.append(" ".join(f"s{i}" for i in numbers) + f" {end}\t{target} {end}\n")
    path.write_text("".join(lines))
    return path
