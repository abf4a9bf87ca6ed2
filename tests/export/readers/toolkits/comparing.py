"""Holds a bundle of an imported model against the model it comes from."""

from pathlib import Path

import numpy as np
import pytest
import torch

from export.bundling.decoding import decode
from export.bundling.running import GraphRows
from export.bundling.writer import export_checkpoint
from export.readers.reading import read_model
from models.checkpoint import Checkpoint, CheckpointError
from models.decoding import BeamRules, beam_search, translate_batch
from models.loading import load_module
from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle, open_bundle
from serving.requests.parameters import BeamParams
from serving.requests.request import GenerationRequest
from tests.export.readers.toolkits.stateless import Stateless

NUM_NEW = 10
TOLERANCE = 1e-4


def exported(source: Path, folder: Path) -> tuple[Checkpoint, Bundle]:
    checkpoint = read_model(source)
    export_checkpoint(checkpoint, folder, Precision.FP32)
    return checkpoint, open_bundle(folder)


def problems_of(path: Path) -> list[str]:
    """Return what is told of a source that cannot be read."""
    with pytest.raises(CheckpointError) as caught:
        read_model(path)
    return caught.value.problems


def some_ids(num: int, longest: int, num_words: int, seed: int = 0) -> list[list[int]]:
    random = np.random.default_rng(seed)
    lengths = random.integers(1, longest + 1, num)
    return [random.integers(4, num_words, length).tolist() for length in lengths]


def largest_error(bundle: Bundle, model: Stateless, sources: list[list[int]]) -> float:
    """Compare log-probabilities at every position of random targets; sources without </s>."""
    random, tokens = np.random.default_rng(1), bundle.manifest.tokens
    targets = random.integers(4, bundle.manifest.vocab_size, (len(sources), NUM_NEW)).tolist()
    targets = [[*tokens.prompt_prefix, *target] for target in targets]
    found = GraphRows(bundle, [[*s, *tokens.source_suffix] for s in sources]).score(targets)
    worst = 0.0
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        ids = torch.tensor([[*source, *tokens.source_suffix]])
        with torch.inference_mode():
            expected = model.logits(ids, torch.tensor([target])).log_softmax(-1)[0]
        worst = max(worst, float(np.abs(found[row] - expected.numpy()).max()))
    return worst


def decoded(bundle: Bundle, sources: list[list[int]], num_beams: int) -> list[list[int]]:
    """By the engine; greedy with one beam."""
    beam = BeamParams(num_beams) if num_beams > 1 else None
    suffix = bundle.manifest.tokens.source_suffix
    requests = [
        GenerationRequest(str(i), (*source, *suffix), beam=beam, max_new_tokens=NUM_NEW)
        for i, source in enumerate(sources)
    ]
    return decode(bundle, requests)


def expected(model: Stateless, sources: list[list[int]], num_beams: int) -> list[list[int]]:
    """By the plain beam search, without </s>."""
    rules = BeamRules(num_beams, NUM_NEW)
    best = (beam_search(model, source, [], rules)[0].token_ids for source in sources)
    return [[i for i in ids if i != model.config.eos_id] for ids in best]


def by_our_module(checkpoint: Checkpoint, sources: list[list[int]]) -> list[list[int]]:
    """Greedy, by the torch module that the checkpoint is for."""
    module = load_module(checkpoint)
    around = checkpoint.conventions
    return [translate_batch(module, [source], NUM_NEW, around)[0] for source in sources]


def must_compute(
    source: Path, folder: Path, reference: Stateless, sources: list[list[int]]
) -> None:
    """A bundle of the source in `folder`, and our module, say what the reference does."""
    checkpoint, bundle = exported(source, folder)
    assert largest_error(bundle, reference, sources[:4]) < TOLERANCE
    greedy = expected(reference, sources, 1)
    assert decoded(bundle, sources, 1) == greedy
    assert by_our_module(checkpoint, sources[:5]) == greedy[:5]
    assert decoded(bundle, sources[:3], 3) == expected(reference, sources[:3], 3)
