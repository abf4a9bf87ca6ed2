"""Makes vocabularies of words that spaces part, or of their parts: OpenNMT-py's, fairseq's.

A part that the word goes on from is written `wor@@` there (subword-nmt, Sennrich et al. 2016). Here
what ends a word is written `ld</w>`, as in files of BPE codes: so special tokens, which have no
such end, are never found in a text.
"""

from collections.abc import Iterable, Sequence

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from export.readers.common.text.errors import TokenizerError, check_names
from models.data.tokenizer import BEYOND

_GOES_ON = "@@"
_END = "</w>"


def from_words(
    words: Sequence[str], unknown: str, special: Sequence[str], codes: str | None = None
) -> bytes:
    """`tokenizer.json` of words in the order of their ids. Raises TokenizerError.

    codes: the text of a file of BPE codes, which cut words that are written whole; without them
    words are cut where a text has them cut, as "wor@@ ld".
    """
    check_names(words)
    special = [*dict.fromkeys((unknown, *special))]
    if missing := [name for name in special if name not in words]:
        raise TokenizerError([f"there is no token {missing[0]!r}"])
    names = [word if word in special else _name(word) for word in words]
    if codes is None:
        tokenizer = Tokenizer(models.WordLevel(_ids(names), unknown))
        tokenizer.normalizer = _ends_of_words()
    else:
        tokenizer = Tokenizer(_bpe(names, unknown, codes))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.BPEDecoder(_END)
    tokens = [AddedToken(name, special=True, normalized=False) for name in special]
    tokenizer.add_special_tokens(tokens)
    return tokenizer.to_str().encode()


def _name(word: str) -> str:
    goes_on = word.endswith(_GOES_ON) and word != _GOES_ON
    return word.removesuffix(_GOES_ON) if goes_on else word + _END


def _ids(names: Iterable[str]) -> dict[str, int]:
    ids: dict[str, int] = {}
    for token_id, name in enumerate(names):
        if ids.setdefault(name, token_id) != token_id:
            raise TokenizerError([f"two tokens are called {name!r}"])
    return ids


def _ends_of_words() -> normalizers.Normalizer:
    return normalizers.Sequence(
        [
            normalizers.Replace(Regex(r"(?<=\S)(?=\s|\z)"), _END),
            normalizers.Replace(Regex(rf"(?<=\S){_GOES_ON}{_END}"), ""),
        ]
    )


def _bpe(names: Sequence[str], unknown: str, codes: str) -> models.BPE:
    """Steps between the parts that are no tokens of the model come after those that are."""
    merges = _merges(codes)
    steps = dict.fromkeys(part for pair in merges for part in (*pair, "".join(pair)))
    known = {*names}
    ids = _ids([*names, BEYOND, *(step for step in steps if step not in known)])
    return models.BPE(vocab=ids, merges=merges, unk_token=unknown, end_of_word_suffix=_END)


def _merges(codes: str) -> list[tuple[str, str]]:
    """Read codes of subword-nmt from version 0.2 on, or of fastBPE, with a count in each line."""
    merges = []
    for number, line in enumerate(codes.split("\n"), 1):
        if not line.strip() or line.startswith("#version"):
            continue
        match line.strip("\r ").split(" "):
            case [left, right] | [left, right, _] if _END not in (left, right):
                merges.append((left, right))
            case _:
                raise TokenizerError([f"line {number} of the BPE codes is {line[:60]!r}"])
    return list(dict.fromkeys(merges))
