"""Fine-tuning: what is trained, what is kept, and going on after a stop."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from models.architectures.transformer.config import TransformerConfig
from models.checkpoint import Checkpoint
from models.conventions import Conventions, own_conventions
from models.data.batching import ParallelData
from models.loading import build
from models.training import tuning
from models.training.state import TrainingStopped
from models.training.tuning import Tuner, TuningConfig, TuningData, TuningTexts

MODEL = TransformerConfig(
    vocab_size=20, d_model=16, num_heads=2, ffn_dim=32, encoder_layers=1, decoder_layers=1
)
OWN = own_conventions(MODEL)
SETTINGS = TuningConfig(minutes=0.2, learning_rate=0.01, tokens_per_batch=64)


@pytest.fixture
def start() -> Checkpoint:
    weights = {name: value.numpy() for name, value in build(MODEL).state_dict().items()}
    return Checkpoint(Path("toy"), MODEL, weights, OWN, {})


def texts(count: int, shift: int, seed: int) -> TuningTexts:
    """Return sentences whose translations are other words, so many further on."""
    rng = random.Random(seed)
    sources = [[rng.randrange(3, 12) for _ in range(4)] for _ in range(count)]
    return TuningTexts(sources, [[token + shift for token in source] for source in sources])


def data(general: int = 0) -> TuningData:
    return TuningData(
        domain=texts(200, 4, 1),
        domain_dev=texts(30, 4, 2),
        general=texts(general, 0, 3),
        general_dev=texts(min(general, 30), 0, 4),
        added=OWN,
    )


def test_the_domain_is_learned_and_tables_stay(start: Checkpoint, tmp_path: Path) -> None:
    tuner = Tuner(start, data(), SETTINGS, tmp_path)
    weights = tuner.run()
    rows = tuner.files.rows()
    assert rows[0]["step"] == 0
    assert min(row["dev_loss"] for row in rows) < rows[0]["dev_loss"] - 0.5
    np.testing.assert_array_equal(weights["embedding.weight"], start.weights["embedding.weight"])
    name = next(each for each in weights if each.startswith("encoder.layers"))
    assert not np.array_equal(weights[name], start.weights[name])
    assert tuner.files.curve.exists()


def test_a_narrow_scope_leaves_the_encoder(start: Checkpoint, tmp_path: Path) -> None:
    weights = Tuner(start, data(), replace(SETTINGS, scope="decoder"), tmp_path).run()
    changed = {name for name in weights if not np.array_equal(weights[name], start.weights[name])}
    assert changed and all(name.startswith("decoder.") for name in changed)


def test_general_texts_have_their_share(start: Checkpoint, tmp_path: Path) -> None:
    tuner = Tuner(start, data(general=1000), replace(SETTINGS, general_share=0.5), tmp_path)
    epoch = np.concatenate(tuner.train.epoch(1, 0, 64))
    assert abs((epoch >= 200).mean() - 0.5) < 0.06


def test_the_best_state_forgets_nothing(start: Checkpoint, tmp_path: Path) -> None:
    tuner = Tuner(start, data(general=200), SETTINGS, tmp_path)
    tuner.files.record({"general_loss": 1.0, "step": 0})
    assert tuner._score(2.0, 0.5) == tuner._score(2.0, 1.0) == -2.0
    assert tuner._score(1.5, 2.0) == -2.5  # better on the domain, and worse by more elsewhere


def test_a_stopped_run_goes_on(
    start: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = (number * 0.3 for number in range(10_000))
    monkeypatch.setattr(tuning.time, "monotonic", lambda: next(clock))
    first = Tuner(start, data(), SETTINGS, tmp_path)
    checks = _stopping_at(5)
    monkeypatch.setattr(first.brake, "check", lambda: next(checks))
    with pytest.raises(TrainingStopped):
        first.run()
    again = Tuner(start, data(), SETTINGS, tmp_path)
    assert again.progress.step == first.progress.step > 1
    again.run()
    steps = [row["step"] for row in again.files.rows()]
    assert steps == sorted({*steps}) and steps[0] == 0 and steps[-1] > first.progress.step


def _stopping_at(number: int) -> Iterator[None]:
    for _ in range(number - 1):
        yield None
    raise TrainingStopped(15)


def test_texts_beyond_the_limits_are_left_out() -> None:
    config = MODEL.model_copy(update={"max_source_tokens": 4, "max_target_tokens": 4})
    sources, targets = [[3], [3] * 3, [3] * 4, [], [3]], [[5], [5] * 3, [5], [5], [5] * 4]
    actual = TuningTexts(sources, targets).select_fitting(config, OWN)
    assert actual.sources == [[3], [3] * 3]


def test_tokens_of_languages_stand_around_texts() -> None:
    added = Conventions((7,), (2,), (9, 8), (2,))
    batch = ParallelData([[4]], [[5, 6]], np.ones(1), MODEL, added=added).batch(np.array([0]))
    assert batch.source_ids.tolist() == [[7, 4, 2]]
    assert batch.input_ids.tolist() == [[9, 8, 5, 6]]
    assert batch.labels.tolist() == [[-100, 5, 6, 2]]
