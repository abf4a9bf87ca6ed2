"""Reads and writes the two sides of a translation model: a tokenizer for each."""

from collections.abc import Sequence
from dataclasses import dataclass

from serving.bundle.opening import Bundle
from serving.parameters import TokenIds
from serving.pipelines.translation.language_frame import LanguageFrame
from serving.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TokenizerPair:
    """Holds the tokenizers of source and target; most models have one for both."""

    source: Tokenizer
    target: Tokenizer

    @classmethod
    def load(cls, bundle: Bundle) -> "TokenizerPair":
        """Read a bundle's tokenizers; a language model has one for both sides.

        Raises BundleError.
        """
        manifest = bundle.manifest
        target = Tokenizer(bundle.target_tokenizer_path, manifest.vocab_size)
        if bundle.target_tokenizer_path == bundle.tokenizer_path:
            return cls(target, target)
        size = manifest.source_vocab_size or manifest.vocab_size
        return cls(Tokenizer(bundle.tokenizer_path, size), target)

    def encode_sources(self, texts: Sequence[str], frame: LanguageFrame) -> list[TokenIds]:
        """Return each text as the encoder takes it."""
        return [frame.around(ids) for ids in self.source.encode_batch(texts)]

    def source_pieces(self, ids: TokenIds, frame: LanguageFrame) -> list[bytes]:
        """Return the bytes of each token of a framed source; those around the text have none."""
        end = len(ids) - len(frame.after)
        text = self.source.pieces(ids[len(frame.before) : end])
        return [*(b"" for _ in frame.before), *text, *(b"" for _ in frame.after)]
