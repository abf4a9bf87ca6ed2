"""mBART (Liu et al. 2020), for 25 languages, and mBART-50 (Tang et al. 2020).

BART with pre-norm layers and norms at both ends of each stack. The first puts the source's language
after its end and begins the target with the target's language; the second puts the source's
language first and makes the target's the first token after </s>.
"""

from typing import Any

from export.readers.hugging_face.folder import Folder
from export.readers.hugging_face.translators.bart import FORCED_EOS, read_stacks
from export.readers.hugging_face.translators.decoding import Decoding
from export.readers.hugging_face.translators.languages import (
    MBART,
    by_language,
    codes,
    language_tokens,
    only_token,
)
from models.conventions import Conventions, LanguageIds
from models.storage.checkpoint import Checkpoint

FIXED: dict[str, Any] = {  # in older files; the architecture has nothing else
    "add_bias_logits": False,
    "extra_pos_embeddings": 2,
    "normalize_before": True,
    "normalize_embedding": True,
    "add_final_layer_norm": True,
    "static_position_embeddings": False,
}


def read(folder: Folder) -> Checkpoint:
    folder.config.default_to(forced_eos_token_id=FORCED_EOS)
    decoding = Decoding(folder, default_start="eos_token_id")
    conventions = _conventions(folder, decoding)
    languages = {
        "source_languages": codes(conventions.sources),
        "target_languages": codes(conventions.targets),
    }
    return read_stacks(folder, FIXED, decoding, conventions, languages)


def _conventions(folder: Folder, decoding: Decoding) -> Conventions:
    """mBART-50 has a tokenizer of its own; without its name, targets that begin with </s> tell."""
    tokens = language_tokens(folder, MBART)
    kind = folder.tokenizer.word("tokenizer_class", "")
    begins_with_end = decoding.start in decoding.stop and not kind.startswith("MBartTokenizer")
    is_50 = kind.startswith("MBart50") or begins_with_end
    part = "source_prefix" if is_50 else "source_suffix"
    targets = only_token(tokens, decoding.forced if is_50 else decoding.start)
    return decoding.conventions(
        (decoding.start,) if is_50 else (),
        num_forced=1,
        sources=by_language(tokens, lambda token_id: LanguageIds(**{part: (token_id,)})),
        targets=by_language(targets, lambda token_id: LanguageIds(prompt_prefix=(token_id,))),
    )
