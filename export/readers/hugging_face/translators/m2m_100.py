"""M2M-100 (Fan et al. 2020) and NLLB (NLLB Team 2022): many languages to many.

Pre-norm layers; sinusoids with the rates of tensor2tensor, in single precision throughout.
"""

from functools import partial
from typing import Any

from export.readers.common.shapes import sinusoids
from export.readers.hugging_face.folder import Folder
from export.readers.hugging_face.translators.decoding import Decoding
from export.readers.hugging_face.translators.languages import (
    M2M,
    NLLB,
    by_language,
    codes,
    language_tokens,
    only_token,
)
from export.readers.hugging_face.translators.stacks import made_positions, sizes, weights
from models.conventions import Conventions, LanguageIds
from models.storage.checkpoint import Checkpoint


def read(folder: Folder) -> Checkpoint:
    folder.check_head("ForConditionalGeneration")
    decoding = Decoding(folder, default_start="eos_token_id")
    conventions = _conventions(folder, decoding)
    config: Any = folder.configured(
        sizes(folder, default_activation="relu", scales=True)
        | decoding.special_tokens
        | {"source_languages": codes(conventions.sources)}
        | {"target_languages": codes(conventions.targets)}
    )
    positions = made_positions(partial(sinusoids, first=config.pad_id + 1))
    found = weights(config, folder.tensors, positions)
    return folder.checkpoint(config, found, conventions)


def _conventions(folder: Folder, decoding: Decoding) -> Conventions:
    """NLLB's older form puts the language after the source (`legacy_behaviour`)."""
    tokens = language_tokens(folder, NLLB) or language_tokens(folder, M2M)
    is_suffix = folder.tokenizer.flag("legacy_behaviour", False)
    part = "source_suffix" if is_suffix else "source_prefix"
    targets = only_token(tokens, decoding.forced)
    return decoding.conventions(
        (decoding.start,),
        num_forced=1,
        sources=by_language(tokens, lambda token_id: LanguageIds(**{part: (token_id,)})),
        targets=by_language(targets, lambda token_id: LanguageIds(prompt_prefix=(token_id,))),
    )
