"""Reads the tokenizer files of a Hugging Face folder, whichever of them there are.

`tokenizer.json` is taken as it is. Without it: the sentencepiece models of Marian, M2M-100, NLLB,
mBART, XLM-R, T5, DeBERTa, Pegasus, Llama and Gemma with the ids that `transformers` gives their
pieces, GPT-2's `vocab.json` with `merges.txt`, or BERT's `vocab.txt`. Tokens that a user has added
come on top.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Encoding, Tokenizer

from export.readers.common.byte_level import byte_level_bpe
from export.readers.common.pieces import PieceOrder, TokenizerError, using_library
from export.readers.common.tokenizers import (
    fairseq_order,
    read_piece_ids,
    tokenizer_from_sentencepiece,
    tokenizer_from_word_pieces,
)
from models.files import MOST_BYTES, MOST_CONFIG_BYTES, read_file

_SPECIAL = ("<s>", "</s>", "<unk>", "<pad>", "<mask>")
_ROLES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
_BERT_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORD_PIECE_CLASSES = {  # without "Fast" at their end
    "BertTokenizer",
    "ConvBertTokenizer",
    "DistilBertTokenizer",
    "ElectraTokenizer",
    "LayoutLMTokenizer",
    "MobileBertTokenizer",
    "MPNetTokenizer",
    "RetriBertTokenizer",
}
WORD_PIECE_MODELS = {"bert", "distilbert", "electra", "mpnet", "nomic_bert"}  # that have no other
_MOST_HOLES = 1000  # ids without a token
_DECODERS = {
    "Sequence",
    "ByteLevel",
    "ByteFallback",
    "Fuse",
    "Metaspace",
    "Replace",
    "Strip",
    "WordPiece",
    "BPEDecoder",
}


@dataclass(frozen=True)
class Tokenizers:
    """Return `tokenizer.json` of the source, or of both sides; of the target, if it has its own."""

    source: bytes
    target: bytes | None = None


def read_tokenizers(folder: Path, problems: list[str]) -> Tokenizers | None:
    """Read them; gives None if there are problems."""
    try:
        return _read(_Files(folder))
    except TokenizerError as error:
        problems += [f"tokenizer: {problem}" for problem in error.problems]
        return None


def token_ids(tokenizer_json: bytes) -> dict[str, int]:
    """List every token by its name."""
    vocabulary: dict[str, int] = Tokenizer.from_str(tokenizer_json.decode()).get_vocab(True)
    return vocabulary


def encode(
    tokenizer_json: bytes,
    text: str,
    problems: list[str],
    *,
    is_bare: bool,
    pair: str | None = None,
) -> Encoding:
    """Encode a text as the tokenizer does, or a text and its `pair`; bare: without special tokens
    around it. That its patterns give up, at which the library panics, is a problem.
    """
    tokenizer = Tokenizer.from_str(tokenizer_json.decode())
    tokenizer.no_padding()
    try:
        with using_library(f"tokenizer: {text[:40]!r} cannot be encoded"):
            return tokenizer.encode(text, pair, add_special_tokens=not is_bare)
    except TokenizerError as error:
        problems += error.problems
        return Encoding()


class _Files:
    """The tokenizer's files of a folder. Raises TokenizerError for one that cannot be read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.config = self.table("tokenizer_config.json")
        self.model = self.table("config.json")
        self.model_type = str(self.model.get("model_type"))

    def has_files(self, *names: str) -> bool:
        return all((self._folder / name).is_file() for name in names)

    def bytes(self, name: str, most_bytes: int = MOST_BYTES) -> bytes:
        try:
            return read_file(self._folder / name, most_bytes)
        except OSError as error:
            raise TokenizerError([f"{name} cannot be read: {error.strerror}"]) from None

    def text(self, name: str, most_bytes: int = MOST_BYTES) -> str:
        try:
            return self.bytes(name, most_bytes).decode()
        except UnicodeDecodeError:
            raise TokenizerError([f"{name} is not UTF-8"]) from None

    def table(self, name: str, most_bytes: int = MOST_CONFIG_BYTES) -> dict[str, Any]:
        """Read a JSON file; empty if there is none."""
        if not self.has_files(name):
            return {}
        try:
            table = json.loads(self.text(name, most_bytes))
        except (ValueError, RecursionError) as error:
            raise TokenizerError([f"{name} is not JSON: {error}"]) from None
        if not isinstance(table, dict):
            raise TokenizerError([f"{name} is not a table"])
        return table

    def ids(self, name: str) -> dict[str, int]:
        table = self.table(name, MOST_BYTES)
        if wrong := [key for key, value in table.items() if type(value) is not int]:
            raise TokenizerError([f"{name}: the id of {wrong[0]!r} is not a number"])
        return table

    @property
    def roles(self) -> list[str]:
        """Tokens that have a role of their own, and those said to be special."""
        tables = (self.table("special_tokens_map.json"), self.config)
        named = [table.get(role) for role in _ROLES for table in tables]
        return list(dict.fromkeys([*filter(None, map(token_text, named)), *self.additional]))

    @property
    def additional(self) -> list[str]:
        """Such as languages, in the order of their ids."""
        for table in (self.table("special_tokens_map.json"), self.config):
            for key in ("additional_special_tokens", "extra_special_tokens"):
                if isinstance(listed := table.get(key), list) and listed:
                    return [name for name in map(token_text, listed) if name]
        return []

    @property
    def added_tokens(self) -> dict[str, "_Added"]:
        """Tokens with their ids, from either file that may have them."""
        roles = {*self.roles}
        added = {
            name: _Added(token_id, name in roles)
            for name, token_id in self.ids("added_tokens.json").items()
        }
        decoder = self.config.get("added_tokens_decoder")
        for key, token in (decoder if isinstance(decoder, dict) else {}).items():
            name = token_text(token)
            if name is None or not key.isdecimal():
                raise TokenizerError(["tokenizer_config.json: added_tokens_decoder is damaged"])
            is_special = isinstance(token, dict) and bool(token.get("special"))
            added[name] = _Added(int(key), is_special or name in roles)
        return added


@dataclass(frozen=True)
class _Added:
    token_id: int
    is_special: bool


def token_text(token: Any) -> str | None:
    """Return the text of a token, which is written as a text or as a table with one."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _read(files: _Files) -> Tokenizers:
    if files.has_files("source.spm"):
        return _marian(files)
    kinds: list[tuple[tuple[str, ...], Callable[[_Files], bytes]]] = [
        (("tokenizer.json",), _ready),
        (("sentencepiece.bpe.model", "vocab.json"), _m2m_100),
        (("sentencepiece.bpe.model",), _fairseq),
        (("spiece.model",), _pegasus if files.model_type == "pegasus" else _t5),
        (("spm.model",), _deberta),
        (("tokenizer.model",), _llama),
        (("vocab.json", "merges.txt"), _byte_level),
        (("vocab.txt",), _word_pieces),
    ]
    for names, read in kinds:
        if files.has_files(*names):
            return Tokenizers(_with_added(read(files), files))
    raise TokenizerError(["there are no files of a tokenizer that is known"])


def _ready(files: _Files) -> bytes:
    data = files.bytes("tokenizer.json")
    spec = files.table("tokenizer.json", MOST_BYTES)
    with using_library("tokenizer.json cannot be read"):
        ids = Tokenizer.from_buffer(data).get_vocab(True).values()
    if max(ids, default=0) > 2 * len(ids) + _MOST_HOLES:
        raise TokenizerError([f"tokenizer.json has {len(ids)} tokens, and one with id {max(ids)}"])
    if unknown := {*_decoder_types(spec.get("decoder"))} - _DECODERS:
        raise TokenizerError([f"decoder {min(unknown)} is not supported"])
    return data


def _decoder_types(decoder: Mapping[str, Any] | None) -> Iterable[str]:
    if decoder is not None:
        yield str(decoder.get("type"))
        for part in decoder.get("decoders", ()):
            yield from _decoder_types(part)


def _marian(files: _Files) -> Tokenizers:
    """Two sets of pieces; their ids in one vocabulary, or in one each."""
    sides = {"source.spm": "vocab.json", "target.spm": "vocab.json"}
    if files.config.get("separate_vocabs") or files.has_files("target_vocab.json"):
        sides["target.spm"] = "target_vocab.json"
    source, target = (_marian_side(files, *side) for side in sides.items())
    return Tokenizers(source, target)


def _marian_side(files: _Files, model: str, vocabulary: str) -> bytes:
    """Language tokens are written >>fra<<."""
    ids = files.ids(vocabulary)
    languages = [name for name in ids if name.startswith(">>") and name.endswith("<<")]
    order = PieceOrder(ids, (*_SPECIAL, *files.roles, *languages), unknown="<unk>")
    return tokenizer_from_sentencepiece(files.bytes(model), order)


def _m2m_100(files: _Files) -> bytes:
    ids = files.ids("vocab.json")
    names = [f"__{language}__" for language in M2M_100]
    languages = [name for name in files.additional if name not in ids] or names
    order = PieceOrder(ids, (*_SPECIAL, *files.roles), languages, unknown="<unk>")
    return tokenizer_from_sentencepiece(files.bytes("sentencepiece.bpe.model"), order)


def _fairseq(files: _Files) -> bytes:
    """mBART, mBART-50, NLLB and XLM-R: language tokens, where there are any, then <mask>."""
    lists = {
        "MBartTokenizer": MBART,
        "MBart50Tokenizer": MBART_50,
        "NllbTokenizer": NLLB,
        "XLMRobertaTokenizer": (),
    }
    usual = {"mbart": "MBartTokenizer", "xlm-roberta": "XLMRobertaTokenizer"}
    named = files.config.get("tokenizer_class") or files.model.get("tokenizer_class")
    kind = str(named or usual.get(files.model_type)).removesuffix("Fast")
    languages = lists.get(kind)
    if languages is None:
        raise TokenizerError([f"tokenizer_class {kind!r} with sentencepiece.bpe.model is unknown"])
    model = files.bytes("sentencepiece.bpe.model")
    return tokenizer_from_sentencepiece(model, fairseq_order(model, (*languages, "<mask>")))


def _t5(files: _Files) -> bytes:
    if files.model_type == "albert":  # which lower-cases, parts digits and strips accents
        raise TokenizerError(["spiece.model of ALBERT needs its tokenizer.json beside it"])
    number = files.config.get("extra_ids", 100)
    if type(number) is not int or not 0 <= number <= 10_000:
        raise TokenizerError([f"tokenizer_config.json: extra_ids {number!r} is not a number"])
    extra = [f"<extra_id_{i}>" for i in reversed(range(number))]
    return tokenizer_from_sentencepiece(files.bytes("spiece.model"), PieceOrder(appended=extra))


def _pegasus(files: _Files) -> bytes:
    """Pieces are numbered after 103 tokens that stand for gaps, but for padding and the end."""
    model, offset = files.bytes("spiece.model"), files.config.get("offset", 103)
    if type(offset) is not int or not 3 <= offset <= 10_000:
        raise TokenizerError([f"tokenizer_config.json: offset {offset!r} is not supported"])
    gaps = ["<mask_1>", "<mask_2>", *(f"<unk_{i}>" for i in range(2, offset))]
    names = [*read_piece_ids(model)][2:]  # the first ones are padding and the end
    ids = {name: i for i, name in enumerate(["<pad>", "</s>", *gaps, *names])}
    return tokenizer_from_sentencepiece(model, PieceOrder(ids, ("<pad>", "</s>", *gaps)))


def _deberta(files: _Files) -> bytes:
    """DeBERTa v2's and v3's, with BERT's special tokens among the pieces."""
    return tokenizer_from_sentencepiece(files.bytes("spm.model"), PieceOrder(special=_BERT_SPECIAL))


def _llama(files: _Files) -> bytes:
    return tokenizer_from_sentencepiece(files.bytes("tokenizer.model"))


def _byte_level(files: _Files) -> bytes:
    """GPT-2's, and Qwen's with its own pattern."""
    lines = files.text("merges.txt").splitlines()
    merges = [line for line in lines if line and not line.startswith("#version")]
    name = "qwen2" if files.model_type.startswith("qwen") else "gpt-2"
    tokenizer = byte_level_bpe(files.ids("vocab.json"), merges, name)
    special = [t for t in dict.fromkeys((*_SPECIAL, "<|endoftext|>", *files.roles)) if t]
    vocabulary = tokenizer.get_vocab()
    tokenizer.add_special_tokens([_token(name, True) for name in special if name in vocabulary])
    return tokenizer.to_str().encode()


def _word_pieces(files: _Files) -> bytes:
    """BERT's (Devlin et al. 2019), a piece a line; MPNet's special tokens are RoBERTa's.

    Many tokenizers have a `vocab.txt`: its class must be known, and whether it lower-cases.
    """
    _check_word_piece_class(files)
    # Not splitlines: pieces may hold what ends a line in Unicode alone.
    lines = files.text("vocab.txt").replace("\r\n", "\n").removesuffix("\n").split("\n")
    pieces = {piece: number for number, piece in enumerate(lines)}
    special = [*_BERT_SPECIAL, *files.roles]
    lowercase = _flag(files, "do_lower_case")
    if lowercase is None:
        _check_lower_case(pieces.keys() - {*special})
    splits_chinese = _flag(files, "tokenize_chinese_chars")
    return tokenizer_from_word_pieces(
        pieces,
        special=special,
        lowercase=lowercase is not False,
        strip_accents=_flag(files, "strip_accents"),
        splits_chinese=splits_chinese is not False,
    )


def _check_word_piece_class(files: _Files) -> None:
    named = files.config.get("tokenizer_class") or files.model.get("tokenizer_class")
    if named is None and files.model_type not in WORD_PIECE_MODELS:
        raise TokenizerError(
            [
                f"vocab.txt of {files.model_type} does not say which tokenizer reads it: put its"
                ' tokenizer.json beside it, or write {"tokenizer_class": "BertTokenizer",'
                ' "do_lower_case": false}, or true, into tokenizer_config.json'
            ]
        )
    if named is not None and str(named).removesuffix("Fast") not in WORD_PIECE_CLASSES:
        message = "with vocab.txt alone is not supported: put its tokenizer.json beside it"
        raise TokenizerError([f"tokenizer_class {named!r} {message}"])


def _check_lower_case(pieces: Iterable[str]) -> None:
    """Raise TokenizerError for pieces that no text in lower case has; they may be in brackets, as
    those of special tokens.
    """
    written = (piece for piece in pieces if not re.fullmatch(r"\[.*\]|<.*>", piece))
    if cased := sorted(piece for piece in written if piece != piece.lower()):
        example = ", ".join(map(repr, cased[:3]))
        raise TokenizerError(
            [
                f"vocab.txt has {len(cased)} pieces with capitals ({example}), and"
                " tokenizer_config.json does not say whether texts are lower-cased: write"
                ' {"do_lower_case": false}, or true, into it'
            ]
        )


def _flag(files: _Files, name: str) -> bool | None:
    """Return what `tokenizer_config.json` says; None if it says nothing."""
    value = files.config.get(name)
    if value is None or isinstance(value, bool):
        return value
    raise TokenizerError([f"tokenizer_config.json: {name} {value!r} is neither true nor false"])


def _with_added(tokenizer_json: bytes, files: _Files) -> bytes:
    """With the tokens that other files add. Raises TokenizerError if they have other ids there."""
    tokenizer = Tokenizer.from_str(tokenizer_json.decode())
    vocabulary = tokenizer.get_vocab(True)
    added = sorted(files.added_tokens.items(), key=lambda item: item[1].token_id)
    missing = [(name, token) for name, token in added if name not in vocabulary]
    tokenizer.add_tokens([_token(name, token.is_special) for name, token in missing])
    vocabulary = tokenizer.get_vocab(True)
    if wrong := [name for name, token in added if vocabulary[name] != token.token_id]:
        ids = f"{vocabulary[wrong[0]]}, not {files.added_tokens[wrong[0]].token_id}"
        raise TokenizerError([f"the added token {wrong[0]!r} would have id {ids}"])
    return tokenizer.to_str().encode() if missing else tokenizer_json


def _token(name: str, is_special: bool) -> AddedToken:
    return AddedToken(name, special=is_special, normalized=False)


def _codes(text: str) -> tuple[str, ...]:
    return tuple(text.split())


M2M_100 = _codes("""
    af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha
    he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne
    nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo
    xh yi yo zh zu
""")

MBART = _codes("""
    ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV
    my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN
""")

MBART_50 = _codes("""
    ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV
    my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID
    ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA
    ur_PK xh_ZA gl_ES sl_SI
""")

NLLB = _codes("""
    ace_Arab ace_Latn acm_Arab acq_Arab aeb_Arab afr_Latn ajp_Arab aka_Latn amh_Ethi apc_Arab
    arb_Arab ars_Arab ary_Arab arz_Arab asm_Beng ast_Latn awa_Deva ayr_Latn azb_Arab azj_Latn
    bak_Cyrl bam_Latn ban_Latn bel_Cyrl bem_Latn ben_Beng bho_Deva bjn_Arab bjn_Latn bod_Tibt
    bos_Latn bug_Latn bul_Cyrl cat_Latn ceb_Latn ces_Latn cjk_Latn ckb_Arab crh_Latn cym_Latn
    dan_Latn deu_Latn dik_Latn dyu_Latn dzo_Tibt ell_Grek eng_Latn epo_Latn est_Latn eus_Latn
    ewe_Latn fao_Latn pes_Arab fij_Latn fin_Latn fon_Latn fra_Latn fur_Latn fuv_Latn gla_Latn
    gle_Latn glg_Latn grn_Latn guj_Gujr hat_Latn hau_Latn heb_Hebr hin_Deva hne_Deva hrv_Latn
    hun_Latn hye_Armn ibo_Latn ilo_Latn ind_Latn isl_Latn ita_Latn jav_Latn jpn_Jpan kab_Latn
    kac_Latn kam_Latn kan_Knda kas_Arab kas_Deva kat_Geor knc_Arab knc_Latn kaz_Cyrl kbp_Latn
    kea_Latn khm_Khmr kik_Latn kin_Latn kir_Cyrl kmb_Latn kon_Latn kor_Hang kmr_Latn lao_Laoo
    lvs_Latn lij_Latn lim_Latn lin_Latn lit_Latn lmo_Latn ltg_Latn ltz_Latn lua_Latn lug_Latn
    luo_Latn lus_Latn mag_Deva mai_Deva mal_Mlym mar_Deva min_Latn mkd_Cyrl plt_Latn mlt_Latn
    mni_Beng khk_Cyrl mos_Latn mri_Latn zsm_Latn mya_Mymr nld_Latn nno_Latn nob_Latn npi_Deva
    nso_Latn nus_Latn nya_Latn oci_Latn gaz_Latn ory_Orya pag_Latn pan_Guru pap_Latn pol_Latn
    por_Latn prs_Arab pbt_Arab quy_Latn ron_Latn run_Latn rus_Cyrl sag_Latn san_Deva sat_Beng
    scn_Latn shn_Mymr sin_Sinh slk_Latn slv_Latn smo_Latn sna_Latn snd_Arab som_Latn sot_Latn
    spa_Latn als_Latn srd_Latn srp_Cyrl ssw_Latn sun_Latn swe_Latn swh_Latn szl_Latn tam_Taml
    tat_Cyrl tel_Telu tgk_Cyrl tgl_Latn tha_Thai tir_Ethi taq_Latn taq_Tfng tpi_Latn tsn_Latn
    tso_Latn tuk_Latn tum_Latn tur_Latn twi_Latn tzm_Tfng uig_Arab ukr_Cyrl umb_Latn urd_Arab
    uzn_Latn vec_Latn vie_Latn war_Latn wol_Latn xho_Latn ydd_Hebr yor_Latn yue_Hant zho_Hans
    zho_Hant zul_Latn
""")
