"""Makes a tokenizer of BERT's word pieces (Devlin et al. 2019)."""

from collections.abc import Iterable, Mapping

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from export.readers.common.text.errors import TokenizerError

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
