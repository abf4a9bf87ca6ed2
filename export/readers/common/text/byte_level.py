"""Makes byte-level BPE (Radford et al. 2019), and parts words before it as models do.

Names and patterns are those of llama.cpp, llm_tokenizer_bpe.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from export.readers.common.text.errors import TokenizerError, check_names

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA_3 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_QWEN_2 = _LLAMA_3.replace("{1,3}", "")


@dataclass(frozen=True)
class _Splitting:
    """patterns: each parts what those before have left. takes_whole_words: a word that is a token
    needs no merges. composes: Unicode's NFC comes first, as the model was trained.
    """

    patterns: tuple[str, ...]
    takes_whole_words: bool = False
    composes: bool = False


_DEFAULT = _Splitting((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"))
_SPLITTINGS = {
    "default": _DEFAULT,
    "falcon": _Splitting((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")),
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais"), _Splitting((_GPT2,))),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"),
        _Splitting((r"\p{N}", _GPT2)),
    ),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "falcon3"),
        _Splitting((_LLAMA_3,), takes_whole_words=True),
    ),
    **dict.fromkeys(("smaug-bpe", "dbrx"), _Splitting((_LLAMA_3,))),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), _Splitting((_QWEN_2,), composes=True)),
    "stablelm2": _Splitting((_QWEN_2,)),
}


def byte_level_bpe(vocabulary: Mapping[str, int], merges: Sequence[str], name: str) -> Tokenizer:
    """merges: "a b", the first ones first. name: how words are parted. Raises TokenizerError."""
    if name not in _SPLITTINGS:
        raise TokenizerError([f"tokenizer.ggml.pre {name!r} is not supported"])
    splitting = _SPLITTINGS[name]
    tokenizer = Tokenizer(_bpe(vocabulary, merges, splitting.takes_whole_words))
    tokenizer.normalizer = normalizers.NFC() if splitting.composes else None
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in splitting.patterns]
        + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _bpe(
    vocabulary: Mapping[str, int], merges: Sequence[str], takes_whole_words: bool
) -> models.BPE:
    """Raises TokenizerError for a merge of what are no tokens."""
    check_names(vocabulary)
    pairs = []
    for merge in merges:
        left, space, right = merge.partition(" ")
        if not space or not {left, right, left + right} <= vocabulary.keys():
            raise TokenizerError([f"the merge {merge!r} is not one of tokens"])
        pairs.append((left, right))
    return models.BPE(vocab=dict(vocabulary), merges=pairs, ignore_merges=takes_whole_words)
