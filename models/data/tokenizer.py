"""Byte-level BPE tokenizers: any valid Unicode survives a round trip, and nothing is unknown."""

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

# Names with higher ids are needed to cut texts, but unknown to the model; serving knows this name.
BEYOND = "<beyond the vocabulary>"
UNKNOWN = "<unk>"  # of tokenizers that are not of ours
APOSTROPHE = "['\u2019]"
LETTER = r"[\p{L}\p{M}]"
ELIDED = "l|d|j|m|t|s|n|c|qu|jusqu|lorsqu|puisqu|quoiqu|presqu|quelqu"
CONTRACTED = "s|t|re|ve|m|ll|d"
# A space belongs to what follows it. An elided word keeps its apostrophe, as in "l'" before "eau".
PIECES = "|".join(
    (
        f" ?(?i:aujourd{APOSTROPHE}hui)(?!{LETTER})",
        f" ?(?i:{ELIDED}){APOSTROPHE}(?={LETTER})",
        f"{APOSTROPHE}(?i:{CONTRACTED})(?!{LETTER})",
        f" ?{LETTER}+",
        r" ?\p{N}",
        r" ?[^\s\p{L}\p{M}\p{N}]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
SPECIAL_TOKENS = [
    "<pad>",
    "<s>",
    "</s>",
]  # ids 0, 1, 2: models.configs.base.SpecialTokens
MASK_TOKEN = "<mask>"  # with the id after them, in tokenizers of models that learn masked words


def train_tokenizer(texts: Iterable[str], vocab_size: int, *, has_mask: bool = False) -> Tokenizer:
    """Train a tokenizer of `vocab_size` tokens (Sennrich et al. 2016, over bytes). Digits stay
    single, and French elisions stay whole: `d'`, `qu'`, `aujourd'hui`.

    has_mask: with a token for masked words, which is read from texts.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[*SPECIAL_TOKENS, *[MASK_TOKEN] * has_mask],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if has_mask:
        written = tokenizer.to_str().encode()
        return read_tokenizer(reading_mask(written, len(SPECIAL_TOKENS)).decode())
    return as_plain_text(tokenizer)


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Read a `tokenizer.json`."""
    return as_plain_text(Tokenizer.from_file(str(path)))


def read_tokenizer(text: str) -> Tokenizer:
    """Parse the content of a `tokenizer.json`."""
    return as_plain_text(Tokenizer.from_str(text))


def reading_mask(tokenizer_json: bytes, mask_id: int) -> bytes:
    """Return a `tokenizer.json` whose mask token is read from texts, as no special token is."""
    spec = json.loads(tokenizer_json)
    added: list[dict[str, object]] = spec["added_tokens"]
    if all(token["id"] != mask_id for token in added):
        name = Tokenizer.from_str(tokenizer_json.decode()).id_to_token(mask_id)
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        added.append({"id": mask_id, "content": name, **flags})
    for token in added:
        token["special"] = token["id"] != mask_id and bool(token["special"])
    return json.dumps(spec, ensure_ascii=False).encode()


def as_plain_text(tokenizer: Tokenizer) -> Tokenizer:
    """Return the tokenizer without special tokens in texts: a literal "</s>" in a text stays text.
    Special tokens are added by id.
    """
    tokenizer.encode_special_tokens = True
    return tokenizer


def encode_all(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    """Encode each text without special tokens. Tokens that the model does not have become the
    unknown token.
    """
    rows = [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]
    end, unknown = tokenizer.token_to_id(BEYOND), tokenizer.token_to_id(UNKNOWN)
    if end is None or unknown is None:
        return rows
    return [[token_id if token_id < end else unknown for token_id in ids] for ids in rows]
