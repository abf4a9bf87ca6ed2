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
class SpecialTokens:
    """The special tokens of one pair of languages.

    before: tokens in front of a source.
    after: tokens at its end.
    prompt: the beginning of a target, after the bundle's own prefix.
    num_given: number of tokens at the beginning of a target, including that prefix.
    is_prompt: whether a source with its tokens is the prompt of a language model.
    """

    before: TokenIds
    after: TokenIds
    prompt: TokenIds
    num_given: int
    is_prompt: bool = False

    @classmethod
    def between(cls, tokens: Tokens, source: str, target: str) -> "SpecialTokens":
        """Return the frame of a pair of languages, given by the model's codes."""
        with_languages = tokens.with_languages(source, target)
        prompt = with_languages.prompt_prefix[len(tokens.prompt_prefix) :]
        num_given = len(with_languages.prompt_prefix)
        return cls(with_languages.source_prefix, with_languages.source_suffix, prompt, num_given)

    def add_to(self, ids: Sequence[int]) -> TokenIds:
        return (*self.before, *ids, *self.after)

    @property
    def num_around(self) -> int:
        return len(self.before) + len(self.after)

    @property
    def num_counted(self) -> int:
        """Return the number of prompt tokens that count in the length of a hypothesis of a beam
        search, as in Hugging Face's `generate`: all but the first, none of a language model's.
        """
        return 0 if self.is_prompt else max(self.num_given - 1, 0)


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

    def encode_sources(self, texts: Sequence[str], frame: SpecialTokens) -> list[TokenIds]:
        """Return the token ids of each text with the special tokens of the languages."""
        if frame.is_prompt:
            with tokenizing("text"):
                return [frame.add_to(self.source.encode_inside(text)) for text in texts]
        return [frame.add_to(ids) for ids in self.source.encode_batch(texts)]

    def source_pieces(self, ids: TokenIds, frame: SpecialTokens) -> list[bytes]:
        """Return the bytes of each token of a framed source; special tokens have none."""
        end = len(ids) - len(frame.after)
        text = self.source.pieces(ids[len(frame.before) : end])
        return [*(b"" for _ in frame.before), *text, *(b"" for _ in frame.after)]
