"""The options of translation, as clients write them: each is declared once.

HTTP bodies, command lines and OpenAPI follow from the declaration; options of decoding are declared
in `serving/requests/parameters.py`.
"""

from dataclasses import dataclass
from typing import Any

from serving.requests.parameters import MAX_BEAMS, Integers


@dataclass(frozen=True, slots=True)
class TranslationOption:
    """One option of a translation.

    name: as clients write it. job_field: the field of `TranslationJob` that has its value.
    default: what a request means that does not give it.
    help: a few sentences about its effect.
    values: the range of a number.
    """

    name: str
    job_field: str
    default: Any
    help: str
    values: Integers | None = None


TRANSLATION_OPTIONS: dict[str, TranslationOption] = {
    option.name: option
    for option in (
        TranslationOption(
            "alternatives",
            "num_alternatives",
            0,
            "Number of further translations of each text, by a beam search with two beams for"
            " each.",
            Integers(0, MAX_BEAMS - 1),
        ),
        TranslationOption(
            "target_prefix",
            "target_prefix",
            "",
            "Beginning of the translation; its last word may be incomplete, unless a space follows"
            " it.",
        ),
        TranslationOption(
            "alternatives_at_prefix",
            "alternatives_at_prefix",
            False,
            "Alternatives go on otherwise after `target_prefix`, likeliest first. Those that are"
            " less than a thousandth as likely as the translation, or differ from it in case,"
            " spaces or punctuation only, are left out.",
        ),
        TranslationOption(
            "replace_unknown",
            "replaces_unknown",
            False,
            "Uses the source's word for unknown words.",
        ),
        TranslationOption(
            "alignments",
            "returns_alignments",
            False,
            "Returns which word is the translation of which.",
        ),
        TranslationOption(
            "return_scores",
            "returns_scores",
            False,
            "Returns scores of translations: the mean over sentences of the log-probability over"
            " the number of tokens to `length_penalty`.",
        ),
        TranslationOption(
            "quality",
            "returns_quality",
            False,
            "Returns how good each translation seems to be: the score to be expected of the text"
            " and of each sentence, from 0 to 1, and the probability of each word.",
        ),
        TranslationOption(
            "protect",
            "protection",
            True,
            "Addresses, code, placeholders, numbers and the like stay as they are.",
        ),
    )
}
