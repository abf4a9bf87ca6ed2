"""Byte-level BPE (Radford et al. 2019), WordPiece (Devlin et al. 2019), and chat templates.

Names and patterns of byte-level BPE are those of llama.cpp, llm_tokenizer_bpe.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from export.readers.common.pieces import TokenizerError, check_names

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


UNKNOWN = "[UNK]"


def word_pieces(
    ids: Mapping[str, int],
    *,
    special: Iterable[str],
    lowercase: bool,
    strip_accents: bool | None,
    splits_chinese: bool,
) -> bytes:
    """Make `tokenizer.json` of pieces with their ids; those inside words begin with ##. Raises
    TokenizerError where no piece stands for what is unknown.

    special: tokens that texts cannot spell, as far as they are pieces. strip_accents: None where
    that goes with `lowercase`. splits_chinese: each of its characters is a word.
    """
    if UNKNOWN not in ids:
        raise TokenizerError([f"vocab.txt has no {UNKNOWN}"])
    tokenizer = Tokenizer(models.WordPiece(dict(ids), unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=splits_chinese, strip_accents=strip_accents, lowercase=lowercase
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens([token for token in dict.fromkeys(special) if token in ids])
    return tokenizer.to_str().encode()


DEFAULT, TOOLS = "default", "tool_use"


def joined_template(templates: Mapping[str, str], notes: list[str]) -> str | None:
    """Return one template that is "tool_use" in chats with tools and "default" in others, as
    `transformers` chooses between them. Other templates are left out, with a note.
    """
    others = sorted(templates.keys() - {DEFAULT, TOOLS})
    if others:
        notes.append(f"chat templates are left out: {', '.join(others)}")
    usual, for_tools = (templates.get(name) for name in (DEFAULT, TOOLS))
    if for_tools is None or usual is None or for_tools == usual:
        return usual if for_tools is None else for_tools
    # A plus keeps the white space beside a tag, which Jinja would remove with `trim_blocks` and
    # `lstrip_blocks`. Of each template it drops one newline at the end.
    first, second = for_tools.removesuffix("\n"), usual.removesuffix("\n")
    return f"{{% if tools +%}}{first}{{%+ else +%}}{second}{{%+ endif %}}"
