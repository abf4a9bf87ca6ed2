"""Heads of tokens and of masked words give what the pipelines of `transformers` give."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import FillMaskPipeline, PreTrainedTokenizerFast, TokenClassificationPipeline

from export.bundling.running import TextGraph
from export.bundling.writer import export_checkpoint
from export.readers.reading import read_model
from models.checkpoint import CheckpointError
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from serving.engine.config import EngineConfig
from serving.pipelines.jobs import EncodeJob, Encodings
from serving.pipelines.loading import load_model
from tests.export.readers.hugging_face.changing import change
from tests.export.readers.hugging_face.encoders import (
    FAMILIES,
    WITHOUT_MASKED_WORDS,
    random_model,
    save,
    tokenizer_of,
)

WORDS = "Anna saw Paris and Berlin; the naïve café of Łódź sold 20 crêpes to Anna Berliner."
TEXTS = (WORDS, "  Anna,Anna  in\tParis!  ", "naïve crêpes… 東京 saw 20", "ﬁne ½ Paris")
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "MISC", "B-O", "X-Y"]
MOST = 1e-4  # nats
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
SPACES = pre_tokenizers.Metaspace(), decoders.Metaspace()


def of_roberta(pieces: tuple[Any, Any], trims: bool) -> Tokenizer:
    """Train a tokenizer with the special tokens of RoBERTa and XLM-R."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pieces
    mask = AddedToken("<mask>", lstrip=True, special=True, normalized=False)
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", mask],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if trims else [],
        show_progress=False,
    )
    tokenizer.train_from_iterator([WORDS], trainer)
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=trims, add_prefix_space=False
    )
    return tokenizer


TOKENIZERS = {
    "bert": (lambda: tokenizer_of("bert"), "[MASK]"),
    "roberta": (lambda: of_roberta(BYTES, trims=True), "<mask>"),
    "xlm-roberta": (lambda: of_roberta(SPACES, trims=False), "<mask>"),
}


def made(family: str, kind: str, folder: Path, **options: Any) -> dict[str, Any]:
    """Save a random model and a tokenizer to a folder, and return them."""
    tokenizer = TOKENIZERS[family][0]()
    tokenizer.no_truncation()
    size = {"vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": 200}
    model = random_model(family, kind=kind, **size, **options)
    pad = "[PAD]" if family == "bert" else "<pad>"
    names = {"mask_token": TOKENIZERS[family][1], "pad_token": pad}
    theirs = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    for each in (model, theirs):
        each.save_pretrained(folder)
    return {"model": model, "tokenizer": theirs}


def asked(folder: Path, **options: Any) -> Encodings:
    """Export a folder, serve it and run a job."""
    bundle = folder.parent / "bundle"
    export_checkpoint(read_model(folder), bundle, Precision.FP32)

    async def run() -> Encodings:
        loaded = load_model(bundle, EngineConfig(slots=8, threads=1))
        try:
            return await loaded.pipeline.run(EncodeJob("job", **options))
        finally:
            await loaded.engine.shutdown()

    return asyncio.run(run())


@pytest.mark.parametrize("family", TOKENIZERS)
def test_entities_are_those_of_the_pipeline(family: str, tmp_path: Path) -> None:
    labels = {"id2label": dict(enumerate(LABELS))}
    theirs = made(family, "ForTokenClassification", tmp_path / "theirs", **labels, seed=3)
    pipeline: Any = TokenClassificationPipeline(**theirs, aggregation_strategy="simple")
    found = asked(tmp_path / "theirs", inputs=TEXTS).entities
    assert any(found)
    for text, ours in zip(TEXTS, found, strict=True):
        expected = pipeline(text)
        assert [(e.start, e.end, e.label) for e in ours] == [
            (e["start"], e["end"], e["entity_group"]) for e in expected
        ]
        for one, other in zip(ours, expected, strict=True):
            assert abs(one.score - float(other["score"])) < MOST


@pytest.mark.parametrize("family", TOKENIZERS)
def test_masked_words_are_those_of_the_pipeline(family: str, tmp_path: Path) -> None:
    theirs, mask = made(family, "ForMaskedLM", tmp_path / "theirs"), TOKENIZERS[family][1]
    texts = (f"Anna saw {mask} and", f"{mask} sold crêpes", f"the{mask}café {mask}.", f" {mask}")
    pipeline: Any = FillMaskPipeline(**theirs, top_k=7)
    found = asked(tmp_path / "theirs", inputs=texts, top_k=7).masked_words
    for text, ours in zip(texts, found, strict=True):
        expected = pipeline(text)
        is_one = text.count(mask) == 1
        for words, rows in zip(ours, [expected] if is_one else expected, strict=True):
            for word, row in zip(words, rows, strict=True):
                assert word.token == row["token"]
                assert abs(np.log(word.score) - np.log(row["score"])) < MOST
                assert word.token_str == row["token_str"].removeprefix("##")
                if is_one:  # of several it writes special tokens, too
                    assert word.sequence == row["sequence"].removeprefix("##")


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        *((family, "ForTokenClassification") for family in FAMILIES),
        *((family, "ForMaskedLM") for family in FAMILIES if family not in WITHOUT_MASKED_WORDS),
    ],
)
def test_every_family_has_these_heads(family: str, kind: str, tmp_path: Path) -> None:
    model = random_model(family, 5, kind=kind)
    folder = save(model, tmp_path / "theirs")
    export_checkpoint(read_model(folder), tmp_path / "bundle", Precision.FP32)
    bundle, random = open_bundle(tmp_path / "bundle"), np.random.default_rng(0)
    mask_id = bundle.manifest.encoder.mask_id if bundle.manifest.encoder else None
    rows = [random.integers(5, 50, 6 + number).tolist() for number in range(20)]
    for row in rows:
        row[3] = row[3] if mask_id is None else mask_id
    outputs = TextGraph(bundle).run(rows, [[0] * len(row) for row in rows])
    for place, row in enumerate(rows):
        with torch.inference_mode():
            [theirs] = model(torch.tensor([row])).logits
        if mask_id is None:
            assert np.abs(outputs["logits"][place, : len(row)] - theirs.numpy()).max() < 1e-5
            continue
        logp, ids = theirs[3].log_softmax(-1).topk(20)
        assert outputs["top_ids"][place, 3].tolist() == ids.tolist()
        assert np.abs(outputs["top_logp"][place, 3] - logp.numpy()).max() < MOST


def test_other_output_tables_are_refused_and_sentence_transformers_embeds(tmp_path: Path) -> None:
    folder = save(random_model("bert", kind="ForMaskedLM"), tmp_path)
    stored = load_file(folder / "model.safetensors")
    other = {"cls.predictions.decoder.weight": stored["bert.embeddings.word_embeddings.weight"] + 1}
    save_file({**stored, **other}, folder / "model.safetensors")
    change(folder / "config.json", tie_word_embeddings=False)
    with pytest.raises(CheckpointError, match=r"tie_word_embeddings.*decoder.weight has other"):
        read_model(folder)
    (folder / "modules.json").write_text('[{"type": "models.Transformer", "path": ""}]')
    found = read_model(folder)
    assert found.config.task == "embed" and "BertForMaskedLM is read without" in found.notes[0]
