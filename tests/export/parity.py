"""Compares bundles with the torch modules they came from, on random ids."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from export.bundling.running import GraphRows, Sources
from serving.bundle.opening import open_bundle
from serving.requests.request import Audio, Media, Picture
from tests.reference_models import is_language_model
from tests.tiny import PICTURE_READER, SOUND_READER

NUM_IDS = 259  # of the byte tokenizer


@dataclass(frozen=True)
class Examples:
    sources: Sources  # with </s>; all empty for language models
    targets: list[list[int]]  # with <s>, equally long


def random_ids(random: np.random.Generator, length: int) -> list[int]:
    return [int(i) for i in random.integers(3, NUM_IDS, length)]


def examples_of(
    architecture: str, lengths: tuple[int, ...] = (17, 1, 40, 6), num_steps: int = 12
) -> Examples:
    """Random sources of these lengths (none for a language model), each with its own target;
    pictures or sound for a model that reads these.
    """
    random = np.random.default_rng(len(lengths))
    sources: Sources = [[*random_ids(random, length), 2] for length in lengths]
    targets = [[1, *random_ids(random, num_steps - 1)] for _ in sources]
    if architecture == PICTURE_READER:
        sources = [Picture(random.bytes(3 * 30**2), 26) for _ in sources]
    if architecture == SOUND_READER:
        features = random.uniform(-1, 1.5, (len(sources), 20, 200)).astype(np.float32)
        sources = [Audio(sound.tobytes(), 100) for sound in features]
    return Examples([[] for _ in sources] if is_language_model(architecture) else sources, targets)


def largest_error(bundle: Path, checkpoint: Path, examples: Examples) -> float:
    """Compare log-probabilities, the bundle's step by step against torch's all at once."""
    actual = GraphRows(open_bundle(bundle), examples.sources).score(examples.targets)
    return float(np.abs(actual - torch_log_probabilities(checkpoint, examples)).max())


def torch_log_probabilities(checkpoint: Path, examples: Examples) -> np.ndarray:
    from models.checkpoint import load_checkpoint
    from models.decoding import teacher_forced_log_probabilities
    from models.loading import load_module

    module, pairs = load_module(load_checkpoint(checkpoint)), (examples.sources, examples.targets)
    actual = [
        teacher_forced_log_probabilities(module, _encoder_input(source), target).numpy()
        for source, target in zip(*pairs, strict=True)
    ]
    return np.stack(actual)


def _encoder_input(source: list[int] | Media) -> list[int] | np.ndarray:
    if isinstance(source, Picture):
        return np.frombuffer(source.pixels, np.uint8).reshape(30, 30, 3)
    if isinstance(source, Audio):
        return np.frombuffer(source.features, np.float32).reshape(20, 200)
    return source
