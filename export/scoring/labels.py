"""Scores a model that labels texts, a checkpoint or a bundle: whether each text gets its own."""

from collections.abc import Sequence
from pathlib import Path

from export.checking.texts import ROWS, Ids, TextGraph
from models.configs.encoder import EncoderConfig
from models.data.corpus import Pair
from models.data.labels import LabelResult, framed, numbers_of, tally
from models.data.tokenizer import encode_all, load_tokenizer, read_tokenizer
from models.storage.checkpoint import load_checkpoint
from serving.bundle.manifest import LOGITS, TOKENIZER_FILE
from serving.bundle.opening import Bundle, open_bundle


def score_labels(model: Path, pairs: Sequence[Pair]) -> LabelResult:
    """Label sources, whose own labels are their origins. Raises ValueError for one that is no label
    of the model, CheckpointError and BundleError.
    """
    if (model / "bundle.json").exists():
        return _of_bundle(open_bundle(model), pairs)
    return _of_checkpoint(model, pairs)


def _of_bundle(bundle: Bundle, pairs: Sequence[Pair]) -> LabelResult:
    manifest = bundle.manifest
    assert manifest.encoder is not None  # its task is to classify
    wanted = numbers_of(pairs, manifest.encoder.labels)
    ids = encode_all(load_tokenizer(bundle.folder / TOKENIZER_FILE), [p.source for p in pairs])
    rows = framed(ids, manifest.tokens, manifest.limits.max_source_tokens or 0)
    parts = [rows[start : start + ROWS] for start in range(0, len(rows), ROWS)]
    graph = TextGraph(bundle)
    logits = [graph.run(part, _types(part))[LOGITS] for part in parts]
    given = [number for found in logits for number in found.argmax(axis=1).tolist()]
    return tally(manifest.encoder.labels, wanted, given)


def _of_checkpoint(folder: Path, pairs: Sequence[Pair]) -> LabelResult:
    from models.evaluation.vectors import vectors_of
    from models.loading import load_encoder

    checkpoint = load_checkpoint(folder)
    config = checkpoint.config
    assert isinstance(config, EncoderConfig)
    wanted = numbers_of(pairs, config.labels)
    ids = encode_all(read_tokenizer(checkpoint.tokenizer), [pair.source for pair in pairs])
    rows = framed(ids, checkpoint.conventions, config.max_source_tokens)
    logits = vectors_of(load_encoder(checkpoint), rows, _types(rows))
    return tally(config.labels, wanted, [int(each.argmax()) for each in logits])


def _types(rows: Ids) -> Ids:
    return [[0] * len(row) for row in rows]
