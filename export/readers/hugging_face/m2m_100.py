"""M2M-100 (Fan et al. 2020) and NLLB-200 (NLLB Team 2022): pre-norm layers, and sinusoids with the
rates of tensor2tensor, in single precision throughout.
"""

from functools import partial

from export.readers.common.shapes import sinusoids
from export.readers.hugging_face.bart_family import (
    BartFamily,
    computed_positions,
    read_decoding,
    read_stacks,
)
from export.readers.hugging_face.folder import Folder
from export.readers.hugging_face.translators import (
    M2M_TOKEN,
    NLLB_TOKEN,
    Decoding,
    list_codes,
    only_token,
    read_language_tokens,
)
from models.checkpoint import Checkpoint
from models.conventions import AddedLanguageIds, Conventions

M2M_100 = BartFamily(
    heads=("ForConditionalGeneration",),
    fixed={},
    default_start="eos_token_id",
    forced_eos=None,
    norm_place="pre",
    positions=lambda config: computed_positions(partial(sinusoids, first=config.pad_id + 1)),
    activation="relu",
    scales_embedding=True,
    has_output_bias=False,
)


def read_m2m_100(folder: Folder) -> Checkpoint:
    decoding = read_decoding(M2M_100, folder)
    conventions = _make_conventions(folder, decoding)
    languages = {
        "source_languages": list_codes(conventions.sources),
        "target_languages": list_codes(conventions.targets),
    }
    return read_stacks(M2M_100, folder, decoding, conventions, languages)


def _make_conventions(folder: Folder, decoding: Decoding) -> Conventions:
    """NLLB's older form puts the language after the source (`legacy_behaviour`)."""
    tokens = read_language_tokens(folder, NLLB_TOKEN) or read_language_tokens(folder, M2M_TOKEN)
    is_suffix = folder.tokenizer.flag("legacy_behaviour", False)
    part = "source_suffix" if is_suffix else "source_prefix"
    targets = only_token(tokens, decoding.forced)
    return decoding.conventions(
        (decoding.start,),
        num_forced=1,
        sources={code: AddedLanguageIds(**{part: (id_,)}) for code, id_ in tokens.items()},
        targets={code: AddedLanguageIds(prompt_prefix=(id_,)) for code, id_ in targets.items()},
    )
