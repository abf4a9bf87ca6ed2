"""Corpora and batches."""

import gzip

import numpy as np
import pytest

from models.batch import IGNORED_LABEL
from models.configs.base import SpecialTokens
from models.data.batching import ParallelData, ProseData
from models.data.corpus import SentencePair, hold_out, read_documents, read_pairs


def parallel(lengths: list[tuple[int, int]], repeats: list[float]) -> ParallelData:
    sources = [[10 + i] * s for i, (s, _) in enumerate(lengths)]
    targets = [[10 + i] * t for i, (_, t) in enumerate(lengths)]
    return ParallelData(sources, targets, np.array(repeats), SpecialTokens())


def test_an_epoch_shows_every_pair_as_often_as_its_repeats_say() -> None:
    rng = np.random.default_rng(0)
    lengths = [tuple(rng.integers(1, 40, 2)) for _ in range(200)]
    data = parallel(lengths, [1.0, 2.0] * 100)
    batches = data.epoch(seed=1, epoch=0, tokens_per_batch=200)
    counts = np.bincount(np.concatenate(batches), minlength=200)
    assert counts.tolist() == [1, 2] * 100
    for indices in batches:
        assert data.batch(indices).input_ids.numel() <= 200
    again = data.epoch(seed=1, epoch=0, tokens_per_batch=200)
    assert all(np.array_equal(a, b) for a, b in zip(batches, again, strict=True))


def test_batches_are_alike_on_both_sides() -> None:
    rng = np.random.default_rng(0)
    target = rng.lognormal(3.0, 0.6, 20_000).clip(1, 200).astype(int)
    source = (target * rng.uniform(0.6, 1.2, len(target))).astype(int).clip(1)
    data = parallel(list(zip(source, target, strict=True)), [1.0] * len(target))
    lengths = [
        np.array([[len(data.sources[i]) + 1, len(data.targets[i]) + 1] for i in indices])
        for indices in data.epoch(seed=1, epoch=0, tokens_per_batch=2048)
    ]
    padded = sum(each.max(axis=0) * len(each) for each in lengths)
    padding = 1 - sum(each.sum(axis=0) for each in lengths) / padded
    assert padding[0] < 0.05
    assert padding[1] < 0.07


def test_a_fractional_repeat_shows_its_share() -> None:
    data = parallel([(3, 3)] * 2000, [0.25] * 2000)
    seen = sum(map(len, data.epoch(seed=1, epoch=3, tokens_per_batch=400)))
    assert 400 < seen < 600


def test_a_batch_is_shifted_and_padded() -> None:
    batch = parallel([(2, 1), (1, 3)], [1, 1]).batch(np.array([0, 1]))
    assert batch.source_ids is not None and batch.source_lengths is not None
    assert batch.source_ids.tolist() == [[10, 10, 2], [11, 2, 0]]
    assert batch.source_lengths.tolist() == [3, 2]
    assert batch.input_ids.tolist() == [[1, 10, 0, 0], [1, 11, 11, 11]]
    assert batch.labels.tolist() == [[10, 2] + [IGNORED_LABEL] * 2, [11, 11, 11, 2]]
    assert batch.num_target_tokens == 6


def test_windows_of_prose_begin_with_the_start_token() -> None:
    data = ProseData(np.arange(100, 200), 8, SpecialTokens())
    (batch, *_) = [data.batch(i) for i in data.epoch(1, 0, 32)]
    assert batch.input_ids.shape == batch.labels.shape == (4, 8)
    assert batch.input_ids[:, 0].tolist() == [1] * 4
    assert (batch.input_ids[:, 1:] == batch.labels[:, :-1]).all()


def test_pairs_are_read_and_a_bad_line_is_named(tmp_path) -> None:
    path = tmp_path / "pairs.tsv.gz"
    path.write_bytes(gzip.compress(b"web\tcat\tchat\nweb\tdog\n"))
    with pytest.raises(ValueError, match=r"pairs.tsv.gz:2: .*origin, source.*found 2 fields"):
        read_pairs(path)


def test_without_origins_they_are_of_the_file(tmp_path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("cat\tchat\n\ndog\tchien\n")
    assert read_pairs(path) == [
        SentencePair("pairs", "cat", "chat"),
        SentencePair("pairs", "dog", "chien"),
    ]
    path.write_text("cat\tchat\nweb\tdog\tchien\n")
    with pytest.raises(ValueError, match=r"pairs.tsv:2: expected source and target .*found 3"):
        read_pairs(path)


def test_chapters_are_documents_of_one_paragraph_a_line(tmp_path) -> None:
    path = tmp_path / "novel.txt"
    chapter = "CHAPTER {}\n\nIt was\na dark night.\n\n" + "Rain fell. " * 60 + "\n\n"
    path.write_text("A NOVEL\n\n" + chapter.format("I") + chapter.format("II"))
    documents = read_documents(path)
    assert [d.split("\n")[:2] for d in documents] == [
        ["CHAPTER I", "It was a dark night."],
        ["CHAPTER II", "It was a dark night."],
    ]
    train, held = hold_out(documents * 10, 0.1, seed=0)
    assert (len(train), len(held)) == (18, 2)
