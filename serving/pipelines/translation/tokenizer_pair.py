"""The tokenizers of source and target, and the special tokens that a language pair adds.

The rule for those tokens is the manifest's `Tokens.between`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from serving.bundle.manifest import Tokens
from serving.bundle.opening import Bundle
from serving.requests.parameters import TokenIds
from serving.text.checks import tokenizing
from serving.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class LanguagePairTokens:
    """The special tokens of one pair of languages.

    source_prefix, source_suffix: tokens before a source, and at its end.
    target_prefix: the beginning of a target, after the bundle's own prefix.
    num_target: number of special tokens at the beginning of a target, including that prefix.
    is_prompt: whether a source with its tokens is the prompt of a language model.
    """

    source_prefix: TokenIds
    source_suffix: TokenIds
    target_prefix: TokenIds
    num_target: int
    is_prompt: bool = False

    @classmethod
    def for_languages(cls, tokens: Tokens, source: str, target: str) -> "LanguagePairTokens":
        """Return the special tokens of a pair of languages by the model's codes."""
        of_pair = tokens.with_languages(source, target)
        return cls(
            of_pair.source_prefix,
            of_pair.source_suffix,
            of_pair.prompt_prefix[len(tokens.prompt_prefix) :],
            len(of_pair.prompt_prefix),
        )

    @property
    def num_source(self) -> int:
        return len(self.source_prefix) + len(self.source_suffix)

    @property
    def num_counted(self) -> int:
        """Return the number of prompt tokens that count in the length of a hypothesis of a beam
        search, as in Hugging Face's `generate`: all but the first, none of a language model's.
        """
        return 0 if self.is_prompt else max(self.num_target - 1, 0)


@dataclass(frozen=True, slots=True)
class TokenizerPair:
    """The tokenizers of source and target; most models have one for both."""

    source: Tokenizer
    target: Tokenizer

    @classmethod
    def load(cls, bundle: Bundle) -> "TokenizerPair":
        """Read the tokenizers of a bundle; a language model has one for both sides.

        Raises BundleError.
        """
        manifest = bundle.manifest
        target = Tokenizer(bundle.target_tokenizer_path, manifest.vocab_size)
        if bundle.target_tokenizer_path == bundle.tokenizer_path:
            return cls(target, target)
        size = manifest.source_vocab_size or manifest.vocab_size
        return cls(Tokenizer(bundle.tokenizer_path, size), target)

    def encode_sources(
        self, texts: Sequence[str], special_tokens: LanguagePairTokens
    ) -> list[TokenIds]:
        """Return the token ids of each text with the special tokens of the languages."""
        prefix, suffix = special_tokens.source_prefix, special_tokens.source_suffix
        if special_tokens.is_prompt:
            with tokenizing("text"):
                rows = [self.source.encode_inside(text) for text in texts]
        else:
            rows = self.source.encode_batch(texts)
        return [(*prefix, *ids, *suffix) for ids in rows]

    def source_pieces(self, ids: TokenIds, special_tokens: LanguagePairTokens) -> list[bytes]:
        """Return the bytes of each token of a source; special tokens have none."""
        start, end = len(special_tokens.source_prefix), len(ids) - len(special_tokens.source_suffix)
        return [b""] * start + self.source.pieces(ids[start:end]) + [b""] * (len(ids) - end)
