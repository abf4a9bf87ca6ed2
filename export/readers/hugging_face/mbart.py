"""mBART (Liu et al. 2020) and mBART-50 (Tang et al. 2020): BART with pre-norm layers and norms at
both ends of each stack.

The first puts the source's language after its end and begins the target with the target's language;
the second puts the source's language first and makes the target's the first token after </s>.
"""

from export.readers.hugging_face.bart import BART
from export.readers.hugging_face.bart_family import (
    LEARNED_POSITIONS,
    BartFamily,
    read_decoding,
    read_stacks,
)
from export.readers.hugging_face.folder import Folder
from export.readers.hugging_face.translators import (
    MBART_TOKEN,
    Decoding,
    list_codes,
    only_token,
    read_language_tokens,
)
from models.checkpoint import Checkpoint
from models.conventions import AddedLanguageIds, Conventions

MBART = BartFamily(
    heads=BART.heads,
    fixed={
        "add_bias_logits": False,
        "normalize_before": True,
        "normalize_embedding": True,
        "add_final_layer_norm": True,
        "static_position_embeddings": False,
    },
    default_start="eos_token_id",
    forced_eos=BART.forced_eos,
    norm_place="pre",
    positions=lambda _: LEARNED_POSITIONS,
    embedding_norm=True,
)


def read_mbart(folder: Folder) -> Checkpoint:
    decoding = read_decoding(MBART, folder)
    conventions = _make_conventions(folder, decoding)
    languages = {
        "source_languages": list_codes(conventions.sources),
        "target_languages": list_codes(conventions.targets),
    }
    return read_stacks(MBART, folder, decoding, conventions, languages)


def _make_conventions(folder: Folder, decoding: Decoding) -> Conventions:
    """mBART-50 has a tokenizer of its own; without its name, targets that begin with </s> tell."""
    tokens = read_language_tokens(folder, MBART_TOKEN)
    kind = folder.tokenizer.word("tokenizer_class", "")
    begins_with_end = decoding.start in decoding.stop and not kind.startswith("MBartTokenizer")
    is_50 = kind.startswith("MBart50") or begins_with_end
    part = "source_prefix" if is_50 else "source_suffix"
    targets = only_token(tokens, decoding.forced if is_50 else decoding.start)
    return decoding.conventions(
        (decoding.start,) if is_50 else (),
        num_forced=1,
        sources={code: AddedLanguageIds(**{part: (id_,)}) for code, id_ in tokens.items()},
        targets={code: AddedLanguageIds(prompt_prefix=(id_,)) for code, id_ in targets.items()},
    )
