"""Byte-level BPE (Radford et al. 2019), with the ways to part a text into words before it.

Names are llama.cpp's (llm_tokenizer_bpe), of `tokenizer.ggml.pre`. Patterns are those of the
models' own tokenizers, where llama.cpp's differ: it writes them without cases of letters and marks,
which its regular expressions do not know.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from export.readers.common.pieces import TokenizerError, check_names

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_LLAMA_3 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1,3}}|{_SIGNS}|{_SPACES}"
_QWEN_2 = _LLAMA_3.replace("{1,3}", "")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+", rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
_CASED_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_TEKKEN = rf"{'|'.join(_CASED)}|\p{{N}}|{_CASED_SIGNS}|{_SPACES}"
_GPT_4O = (
    rf"{_CASED[0]}{_CONTRACTIONS}?|{_CASED[1]}{_CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}|{_CASED_SIGNS}|{_SPACES}"
)
_BLOOM = " ?[^(\\s|.,!?…。，、।۔،)]+"
_DEEPSEEK_3 = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
)


@dataclass(frozen=True)
class PreTokenization:
    """patterns: each parts what those before have left. takes_whole_words: a word that is a token
    needs no merges. begins_with_bos: so does a text, where the file does not say. composes:
    Unicode's NFC comes first, as the model was trained.
    """

    patterns: tuple[str, ...]
    takes_whole_words: bool = False
    begins_with_bos: bool = False
    composes: bool = False


_BY_NAMES = {
    ("default",): PreTokenization((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    ("bailingmoe", "bailingmoe2", "llada-moe"): PreTokenization(
        (
            rf"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|{_WORD}|\p{{N}}|{_SIGNS}"
            r"|\s*[\r\n]|\s+(?!\S)|\s+",
        )
    ),
    ("bloom", "gpt3-finnish", "poro-chat"): PreTokenization((_BLOOM,)),
    ("chatglm-bpe", "dbrx", "glm4", "smaug-bpe"): PreTokenization((_LLAMA_3,)),
    ("codeshell", "command-r", "exaone", "mellum2", "minerva-7b"): PreTokenization(
        (r"\p{N}", _GPT2)
    ),
    ("deepseek-r1-qwen", "qwen2"): PreTokenization((_QWEN_2,), composes=True),
    ("deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm"): PreTokenization(_DEEPSEEK_3),
    ("exaone4", "gigachat", "gpt-2", "granite-docling", "jais", "mpt", "olmo"): PreTokenization(
        (_GPT2,)
    ),
    ("falcon",): PreTokenization((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")),
    (
        "falcon-h1",
        "falcon3",
        "jina-v5-nano",
        "lfm2",
        "llama-bpe",
        "llama-v3",
        "llama3",
    ): PreTokenization((_LLAMA_3,), takes_whole_words=True, begins_with_bos=True),
    ("f2llmv2", "grok-2", "hunyuan", "kormo", "megrez", "solar-open", "stablelm2"): PreTokenization(
        (_QWEN_2,)
    ),
    ("gpt-4o", "kanana2", "llama4", "minimax-m2", "talkie"): PreTokenization((_GPT_4O,)),
    (
        "jina-de",
        "jina-es",
        "jina-v1-en",
        "jina-v2-code",
        "jina-v2-de",
        "jina-v2-es",
    ): PreTokenization((_GPT2,)),
    ("midm-2.0", "pixtral"): PreTokenization(
        (_LLAMA_3,), takes_whole_words=True, begins_with_bos=True
    ),
    ("a.x-4.0", "mellum", "modern-bert", "phi-2", "roberta-bpe", "trillion"): PreTokenization(
        (_GPT2,)
    ),
    ("minicpm5",): PreTokenization(
        (r"\p{N}{1,3}", _LLAMA_3.replace("{1,3}", "+")), takes_whole_words=True
    ),
    ("qwen35",): PreTokenization(
        (
            rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
            rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}",
        ),
        composes=True,
    ),
    ("refact", "smollm", "starcoder"): PreTokenization((r"\p{N}", _GPT2)),
    ("seed-coder",): PreTokenization(
        (rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}",)
    ),
    ("tekken",): PreTokenization((_TEKKEN,), takes_whole_words=True, begins_with_bos=True),
    ("viking",): PreTokenization((_BLOOM, r"\p{N}")),
}
PRE_TOKENIZATIONS = {name: splitting for names, splitting in _BY_NAMES.items() for name in names}


def byte_level_bpe(vocabulary: Mapping[str, int], merges: Sequence[str], name: str) -> Tokenizer:
    """merges: "a b", the first ones first. name: how words are parted. Raises TokenizerError."""
    if name not in PRE_TOKENIZATIONS:
        raise TokenizerError([f"tokenizer.ggml.pre {name!r} is not supported"])
    splitting = PRE_TOKENIZATIONS[name]
    tokenizer = Tokenizer(_byte_level_model(vocabulary, merges, splitting.takes_whole_words))
    tokenizer.normalizer = normalizers.NFC() if splitting.composes else None
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in splitting.patterns]
        + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _byte_level_model(
    vocabulary: Mapping[str, int], merges: Sequence[str], takes_whole_words: bool
) -> models.BPE:
    """Raise TokenizerError for a merge of what are no tokens."""
    check_names(vocabulary)
    pairs = []
    for merge in merges:
        left, space, right = merge.partition(" ")
        if not space or not {left, right, left + right} <= vocabulary.keys():
            raise TokenizerError([f"the merge {merge!r} is not one of tokens"])
        pairs.append((left, right))
    return models.BPE(vocab=dict(vocabulary), merges=pairs, ignore_merges=takes_whole_words)
