"""CTranslate2's WhisperSpec: the folders of faster-whisper.

    model.bin  config.json  vocabulary.json or .txt  tokenizer.json  preprocessor_config.json

The last two may be missing: a tokenizer is made of the vocabulary then, and the other one has what
all models have but for large-v3 and those made from it, which read more bands of a spectrogram.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from export.readers.common.checkpoint_files import add_notes, checkpoint_files, write_card
from export.readers.common.options import MOST_LAYERS, Options
from export.readers.common.pieces import TokenizerError
from export.readers.common.shapes import STACKS
from export.readers.common.weights import (
    Names,
    StoredTensors,
    Table,
    TensorReference,
    WeightReader,
    WeightSource,
    read_weights,
)
from export.readers.common.whisper import (
    END,
    SpeechTokens,
    add_times,
    convolution_names,
    find_suppressed_tokens,
    make_speech_tokenizer,
    read_speech_tokens,
    whisper_shapes,
)
from export.readers.ctranslate2.container import ModelFile
from export.readers.ctranslate2.files import FolderFiles, read_object
from export.readers.ctranslate2.vocabularies import read_tokenizer, read_tokens
from models.architectures.registry import AnyConfig, ModelConfigError, parse_config
from models.checkpoint import TOKENIZER_FILE, Checkpoint, CheckpointError
from models.safetensors import Arrays

CONFIG_FILE, PREPROCESSOR_FILE, VOCABULARY = "config.json", "preprocessor_config.json", "vocabulary"
GELU = 3  # the number of the activation that all models have
_LINEARS = {  # of a layer: theirs, and ours that are in it
    "self_attention/linear_0": [f"self_attention.{part}" for part in ("query", "key", "value")],
    "self_attention/linear_1": ["self_attention.output"],
    "attention/linear_0": ["cross_attention.query"],
    "attention/linear_1": ["cross_attention.key", "cross_attention.value"],
    "attention/linear_2": ["cross_attention.output"],
    "ffn/linear_0": ["feed_forward.up"],
    "ffn/linear_1": ["feed_forward.down"],
}
_NORMS = {
    "self_attention_norm": "self_attention/layer_norm",
    "cross_attention_norm": "attention/layer_norm",
    "feed_forward_norm": "ffn/layer_norm",
}


def read_whisper(path: Path, folder: Path, model: ModelFile) -> Checkpoint:
    """Read a Whisper, its weights still unread. Raises CheckpointError with every problem."""
    return _WhisperReader(path, folder, model).read_checkpoint()


class _WhisperReader:
    """Reads one model. Everything that is wrong is added to `problems`."""

    def __init__(self, path: Path, folder: Path, model: ModelFile) -> None:
        self._path, self._files, self._model = path, FolderFiles(folder), model
        self._problems: list[str] = []
        self._scalars = model.scalars
        self._tensors = StoredTensors(model.tensors, self._problems)
        values = read_object(self._files, CONFIG_FILE, self._problems)
        self._config = Options(CONFIG_FILE, values, self._problems)

    def read_checkpoint(self) -> Checkpoint:
        sizes = self._read_sizes()
        self._check_preprocessor(sizes["audio"])
        self._raise_problems()
        words = read_tokens(self._files, VOCABULARY, sizes["vocab_size"], END, self._problems)
        tokens = read_speech_tokens({word: i for i, word in enumerate(words)}, self._problems)
        self._raise_problems()
        assert tokens is not None, "else there is a problem"
        tokenizer = self._read_tokenizer(words, tokens)
        heads = self._read_alignment_heads(sizes)
        self._raise_problems()
        audio = sizes["audio"] | tokens.audio_options | {"alignment_heads": heads}
        config = self._make_config(sizes | tokens.options | {"audio": audio})
        weights = self._read_weights(config)
        suppressed = self._read_suppressed(tokenizer, tokens)
        self._raise_problems()
        checkpoint = Checkpoint(
            self._path,
            config,
            Arrays(weights),
            tokens.conventions(*suppressed),
            checkpoint_files(self._write_card(config), tokenizer),
            bits=self._model.bits,
        )
        notes = [] if heads else ["config.json names no heads that align words with sound"]
        return add_notes(checkpoint, notes)

    def _raise_problems(self) -> None:
        if self._problems:
            raise CheckpointError(self._path, list(dict.fromkeys(self._problems)))

    def _shape(self, name: str, num_dimensions: int = 2) -> tuple[int, ...]:
        """Return a tensor's shape; of ones, and a problem, if there is no such tensor."""
        stored = self._model.tensors.get(name)
        if stored is None or len(stored.shape) != num_dimensions or not min(stored.shape):
            state = "missing" if stored is None else f"not of {num_dimensions} dimensions"
            self._problems.append(f"{name} is {state}")
            return (1,) * num_dimensions
        return stored.shape

    def _read_sizes(self) -> dict[str, Any]:
        """Return the options that the weights' shapes and single numbers say."""
        vocab_size, d_model = self._shape("decoder/embeddings/weight")
        positions = {
            stack: self._shape(f"{stack}/position_encodings/encodings")[0] for stack in STACKS
        }
        heads = {int(self._scalars.get(f"{stack}/num_heads", 0)) for stack in STACKS}
        if len(heads) > 1 or not min(heads):
            listed = " and ".join(map(str, sorted(heads)))
            self._problems.append(
                f"model.bin: num_heads of encoder and decoder ({listed}) must be one number"
            )
        if self._scalars.get("decoder/activation", GELU) != GELU:
            self._problems.append("model.bin: another activation than GELU is not supported")
        if not self._scalars.get("decoder/pre_norm", 1):
            self._problems.append("model.bin: norms after sublayers are not supported")
        return {
            "architecture": "whisper",
            "vocab_size": vocab_size,
            "d_model": d_model,
            "num_heads": max(heads),
            "ffn_dim": self._shape("decoder/layer_0/ffn/linear_0/weight")[0],
            "encoder_layers": self._count_layers("encoder"),
            "decoder_layers": self._count_layers("decoder"),
            "max_source_tokens": positions["encoder"],
            "max_target_tokens": positions["decoder"],
            "norm": {"epsilon": self._config.positive("layer_norm_epsilon", 1e-5)},
            "tied_embeddings": True,
            "audio": {
                "num_mels": self._shape("encoder/conv1/weight", 3)[1],
                "num_frames": 2 * positions["encoder"],
            },
        }

    def _count_layers(self, stack: str) -> int:
        names = (f"{stack}/layer_{number}/ffn/linear_0/weight" for number in range(MOST_LAYERS))
        return next((i for i, name in enumerate(names) if name not in self._tensors), MOST_LAYERS)

    def _check_preprocessor(self, audio: dict[str, Any]) -> None:
        """Spectrograms are made as all models of this kind have them; a file that says otherwise is
        of something else.
        """
        values = read_object(self._files, PREPROCESSOR_FILE, self._problems, is_required=False)
        options = Options(PREPROCESSOR_FILE, values, self._problems)
        if options.integer("feature_size", audio["num_mels"]) != audio["num_mels"]:
            options.refuse("feature_size", f"must be {audio['num_mels']}, as model.bin has it")
        for name, value in (("sampling_rate", 16000), ("hop_length", 160), ("n_fft", 400)):
            options.only(name, value)

    def _read_tokenizer(self, words: Sequence[str], tokens: SpeechTokens) -> bytes:
        try:
            if TOKENIZER_FILE in self._files:
                tokenizer = read_tokenizer(self._files, (words,), self._problems)
                num_times = len(words) - tokens.first_timestamp
                return add_times(tokenizer or b"", num_times)
            return make_speech_tokenizer(words[: tokens.end], words[tokens.end :])
        except TokenizerError as error:
            self._problems += error.problems
            return b""

    def _read_alignment_heads(self, sizes: dict[str, Any]) -> tuple[int, ...]:
        """Return the heads numbered through all layers, as the file has them by layer and head."""
        pairs, num_heads = self._config.get("alignment_heads", []), sizes["num_heads"]
        for pair in pairs if isinstance(pairs, list) else [pairs]:
            is_pair = isinstance(pair, list) and [*map(type, pair)] == [int, int]
            if not is_pair or not (
                0 <= pair[0] < sizes["decoder_layers"] and 0 <= pair[1] < num_heads
            ):
                self._config.refuse("alignment_heads", "must be pairs of a layer and a head")
                return ()
        return tuple(sorted(layer * num_heads + head for layer, head in pairs))

    def _read_suppressed(
        self, tokenizer: bytes, tokens: SpeechTokens
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the tokens that are never generated, and those that are not generated first."""
        everywhere, first = (self._config.ids(f"suppress_ids{end}") for end in ("", "_begin"))
        computed = find_suppressed_tokens(tokenizer, tokens)
        return everywhere or computed[0], first or computed[1]

    def _make_config(self, values: dict[str, Any]) -> AnyConfig:
        try:
            return parse_config(values)
        except ModelConfigError as error:
            raise CheckpointError(self._path, error.problems) from None

    def _read_weights(self, config: Any) -> dict[str, WeightReader]:
        names: dict[Any, str | WeightSource] = {
            **convolution_names(config, "encoder/conv{number}/{part}")
        }
        names["embedding.weight"] = "decoder/embeddings/weight"
        for stack in STACKS:
            names |= _stack_names(stack)
        weights = read_weights(whisper_shapes(config), Table(names), self._tensors)
        if self._tensors.differ("decoder/embeddings/weight", "decoder/projection/weight"):
            self._problems.append("model.bin: the output has another table than the embeddings")
        self._tensors.ignore("decoder/projection/weight")
        self._tensors.refuse_unused()
        return weights

    def _write_card(self, config: Any) -> bytes:
        name = self._path.resolve().name
        num_languages = len(config.audio.languages)
        facts = [
            f"Languages: {num_languages or 'English'}",
            f"Vocabulary: {config.vocab_size:,} tokens",
        ]
        if self._model.bits:
            facts.append(f"Weights: int{self._model.bits}, with a scale for each row")
        origin = f"Imported from the CTranslate2 model `{name}`, a Whisper, which says nothing"
        return write_card(name, f"{origin} about its licence.", *facts)


def _stack_names(stack: str) -> Names:
    ours, theirs = f"{stack}.layers.*", f"{stack}/layer_*"
    names: dict[Any, str | WeightSource] = {
        f"{stack}.positions.weight": f"{stack}/position_encodings/encodings",
        f"{stack}.norm": _norm(f"{stack}/layer_norm"),
    }
    names |= {f"{ours}.{norm}": _norm(f"{theirs}/{name}") for norm, name in _NORMS.items()}
    for name, parts in _LINEARS.items():
        key = tuple(f"{ours}.{part}" for part in parts)
        names[key] = TensorReference(f"{theirs}/{name}/{{}}")
    return names


def _norm(name: str) -> TensorReference:
    return TensorReference(f"{name}/{{}}", words=("gamma", "beta"))
