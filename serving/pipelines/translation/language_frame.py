"""Puts around a text what a pair of languages adds: to the source, and to the target's beginning.

The rule itself is the manifest's, `Tokens.between`; all that build requests frame texts by it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from serving.bundle.manifest import Tokens
from serving.parameters import TokenIds


@dataclass(frozen=True, slots=True)
class LanguageFrame:
    """Holds the special tokens of one pair of languages.

    before: tokens in front of a source.
    after: tokens at its end.
    prompt: what a target begins with, after the bundle's own prefix.
    num_given: how many tokens a target begins with, that prefix included.
    """

    before: TokenIds
    after: TokenIds
    prompt: TokenIds
    num_given: int

    @classmethod
    def between(cls, tokens: Tokens, source: str, target: str) -> "LanguageFrame":
        """Return the frame of a pair of languages, given by the model's codes."""
        framed = tokens.between(source, target)
        prompt = framed.prompt_prefix[len(tokens.prompt_prefix) :]
        num_given = len(framed.prompt_prefix)
        return cls(framed.source_prefix, framed.source_suffix, prompt, num_given)

    def around(self, ids: Sequence[int]) -> TokenIds:
        return (*self.before, *ids, *self.after)

    @property
    def num_around(self) -> int:
        return len(self.before) + len(self.after)

    @property
    def num_counted(self) -> int:
        """Count the prompt tokens that belong to the length of a beam search's hypothesis: all but
        the first, as in Hugging Face's `generate`.
        """
        return max(self.num_given - 1, 0)
