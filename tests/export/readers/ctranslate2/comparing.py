"""Holds bundles of CTranslate2's models against CTranslate2 itself."""

from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np

from export.bundling.decoding import decode
from export.bundling.running import GraphRows
from export.bundling.writer import export_checkpoint
from export.readers.reading import read_model
from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle, open_bundle
from serving.requests.parameters import BeamParams
from serving.requests.request import GenerationRequest
from tests.export.readers.ctranslate2.specs import list_tokens

NUM_NEW = 16
Tokens = list[list[str]]


def export_model(source: Path, folder: Path, precision: Precision = Precision.FP32) -> Bundle:
    export_checkpoint(read_model(source), folder, precision)
    return open_bundle(folder)


def open_translator(source: Path, compute_type: str = "float32") -> ctranslate2.Translator:
    """The compute type float32 multiplies levels by their scales when the model is loaded."""
    return ctranslate2.Translator(str(source), compute_type=compute_type, intra_threads=1)


def translate(translator: ctranslate2.Translator, sources: Tokens, **options: Any) -> Any:
    defaults = {"beam_size": 1, "max_decoding_length": NUM_NEW, "min_decoding_length": 0}
    return translator.translate_batch(sources, return_scores=True, **defaults | options)


class Vocabulary:
    """The ids of a bundle's tokens."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        source = (bundle.folder / "tokenizer.json").read_text()
        target = bundle.folder / "target_tokenizer.json"
        self.source = list_tokens(source)
        self.target = list_tokens(target.read_text()) if target.is_file() else self.source

    def source_ids(self, tokens: list[str]) -> tuple[int, ...]:
        around = self.bundle.manifest.tokens
        ids = (self.source.index(token) for token in tokens)
        return (*around.source_prefix, *ids, *around.source_suffix)

    def target_ids(self, tokens: list[str]) -> list[int]:
        return [self.target.index(token) for token in tokens]


def largest_error(bundle: Bundle, translator: ctranslate2.Translator, sources: Tokens) -> float:
    """Return the largest difference of log-probabilities of CTranslate2's greedy translations."""
    vocabulary, tokens = Vocabulary(bundle), bundle.manifest.tokens
    targets = [result.hypotheses[0] for result in translate(translator, sources)]
    expected = translator.score_batch(sources, targets)
    prompts = [[*tokens.prompt_prefix, *vocabulary.target_ids(target)] for target in targets]
    longest = max(map(len, prompts))
    prompts = [prompt + [tokens.stop[0]] * (longest - len(prompt)) for prompt in prompts]
    scores = GraphRows(bundle, [[*vocabulary.source_ids(s)] for s in sources]).score(prompts)
    worst = 0.0
    for row, (target, result) in enumerate(zip(targets, expected, strict=True)):
        ids = [*vocabulary.target_ids(target), tokens.stop[0]]
        first = len(tokens.prompt_prefix) - 1
        ours = [float(scores[row][first + place][i]) for place, i in enumerate(ids)]
        worst = max(worst, float(np.abs(np.array(ours) - result.log_probs).max()))
    return worst


def decode_sources(
    bundle: Bundle, sources: Tokens, num_beams: int = 1, length_penalty: float = 1.0
) -> Tokens:
    """Return what our engine makes of the sources."""
    vocabulary = Vocabulary(bundle)
    beam = BeamParams(num_beams, length_penalty=length_penalty) if num_beams > 1 else None
    requests = [
        GenerationRequest(
            str(number), vocabulary.source_ids(source), beam=beam, max_new_tokens=NUM_NEW
        )
        for number, source in enumerate(sources)
    ]
    return [[vocabulary.target[i] for i in ids] for ids in decode(bundle, requests)]


def random_sources(tokens: list[str], num: int = 6, seed: int = 0) -> Tokens:
    """Return sources of ordinary tokens, of which ids from 3 on are some."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 12, num)
    return [[tokens[i] for i in random.integers(3, len(tokens), length)] for length in lengths]
