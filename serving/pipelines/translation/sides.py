"""What a translation model has on its two sides: a tokenizer each, and what languages add there."""

from collections.abc import Sequence
from dataclasses import dataclass

from serving.bundle.manifest import LanguageIds, Tokens
from serving.bundle.opening import Bundle
from serving.parameters import TokenIds
from serving.text.tokenizer import Tokenizer

_NOTHING = LanguageIds()


@dataclass(frozen=True, slots=True)
class Affixes:
    """before, after: what stands around a source. prompt: what a target begins with, after the
    bundle's own prefix.
    """

    before: TokenIds
    after: TokenIds
    prompt: TokenIds

    @classmethod
    def of(cls, tokens: Tokens, source: str, target: str) -> "Affixes":
        """Of a pair of languages, by the model's codes."""
        own = tokens.sources.get(source, _NOTHING)
        other = tokens.targets.get(target, _NOTHING)
        return cls(
            (*other.source_prefix, *own.source_prefix, *tokens.source_prefix),
            (*tokens.source_suffix, *own.source_suffix),
            other.prompt_prefix,
        )

    def around(self, ids: Sequence[int]) -> TokenIds:
        return (*self.before, *ids, *self.after)

    @property
    def num_around(self) -> int:
        return len(self.before) + len(self.after)


@dataclass(frozen=True, slots=True)
class Sides:
    """The tokenizers of source and target; most models have one for both."""

    source: Tokenizer
    target: Tokenizer

    @classmethod
    def of_bundle(cls, bundle: Bundle) -> "Sides":
        """Raises BundleError. A language model has one side."""
        manifest = bundle.manifest
        target = Tokenizer(bundle.target_tokenizer_path, manifest.vocab_size)
        if bundle.target_tokenizer_path == bundle.tokenizer_path:
            return cls(target, target)
        size = manifest.source_vocab_size or manifest.vocab_size
        return cls(Tokenizer(bundle.tokenizer_path, size), target)

    def source_pieces(self, ids: TokenIds, affixes: Affixes) -> list[bytes]:
        """The bytes of each token; those around the text have none."""
        end = len(ids) - len(affixes.after)
        text = self.source.pieces(ids[len(affixes.before) : end])
        return [*(b"" for _ in affixes.before), *text, *(b"" for _ in affixes.after)]
