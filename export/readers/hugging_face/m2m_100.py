"""M2M-100 (Fan et al. 2020) and NLLB (NLLB Team 2022): many languages to many.

Pre-norm layers; sinusoids whose sines come first and cosines last, with rates that are not quite
those of Vaswani et al. 2017: as in tensor2tensor, the last one is 1/10000 exactly.
"""

import math
from typing import Any

import numpy as np

from export.readers.hugging_face.decoding import Decoding
from export.readers.hugging_face.folder import Folder
from export.readers.hugging_face.languages import (
    M2M,
    NLLB,
    by_language,
    codes,
    language_tokens,
    only_token,
)
from export.readers.hugging_face.seq2seq import (
    embeddings,
    fixed_positions,
    layers,
    sizes,
    stack_norms,
)
from models.arrays import Array
from models.conventions import Conventions, LanguageIds
from models.storage.checkpoint import Checkpoint


def read(folder: Folder) -> Checkpoint:
    decoding = Decoding(folder, default_start="eos_token_id")
    conventions = _conventions(folder, decoding)
    config: Any = folder.configured(
        sizes(folder.config, default_activation="relu", scales=True)
        | decoding.special_tokens
        | {"source_languages": codes(conventions.sources)}
        | {"target_languages": codes(conventions.targets)}
    )
    tensors = folder.tensors.without("model.")
    first = config.pad_id + 1
    weights = layers(config, tensors) | fixed_positions(
        tensors, lambda: sinusoids(config.max_source_tokens, config.d_model, first)
    )
    weights |= stack_norms(config, tensors, "layer_norm", "norm") | embeddings(config, tensors)
    return folder.checkpoint(config, weights, conventions)


def sinusoids(num_positions: int, dim: int, first: int) -> Array:
    """sin(pos * 10000^(-i/(dim/2 - 1))) for all i, then the cosines, from position `first` on: f32
    [positions, dim]. In single precision throughout, as the model was trained with it.
    """
    half = dim // 2
    rates = np.exp(np.arange(half, dtype=np.float32) * np.float32(-math.log(10000) / (half - 1)))
    positions = np.arange(first, first + num_positions, dtype=np.float32)
    angle = positions[:, None] * rates
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)


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
