"""What examples find: the folder that `make serve` leaves, and files as their readers may have."""

import asyncio
import gzip
import json
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
from PIL import Image

from serving.bundle.manifest import Precision
from serving.glossaries.entries import GlossaryPair
from serving.glossaries.store import GlossaryStore
from serving.storage.opening import open_state
from serving.translation_memory.tmx import MemorySegment, TranslationUnit, write_tmx
from tests.cache import export_cached
from tests.docs.examples import all_examples
from tests.docs.pages import ROOT
from tests.encoders import encoder_bundle
from tests.loadtest import recordings
from tests.served import int8_bundle
from tests.serving.audio.recordings import tone, write_recording
from tests.serving.documents.packages.test_office import make_docx
from tests.serving.imported import (
    CHAT_TEMPLATE,
    captioning_bundle,
    chatting_bundle,
    many_languages_bundle,
)
from tests.tiny import SOUND_READER, tiny_checkpoint

SHIPPED = ("transformer-en-fr", "bahdanau-en-fr", "llama-en")
PULLED = "bergamot-en-pt"
LINES = "A dog runs.\nTwo children play in the snow.\n"
PAIRS = "A dog runs.\tUn chien court.\nA cat sleeps.\tUn chat dort.\n"
SUBTITLE = "1\n00:00:01,000 --> 00:00:02,000\nA dog runs.\n"
TEXTS = {
    **dict.fromkeys(("in.txt", "lines.txt", "sentences.txt", "reviews.txt"), LINES),
    "prompts.txt": "It was a dark\nMy dear\n",
    "asked.txt": "What is 2 and 2?\n",
    "letter.txt": "Dear Sir,\nwhere is my hat?\n",
    "novel.txt": (ROOT / "tests/data/prose-en.txt").read_text(encoding="utf-8"),
    "pairs.tsv": PAIRS,
    "film.srt": SUBTITLE,
    "news.en.gz": "A dog runs.\nA cat sleeps.\n",
    "news.fr.gz": "Un chien court.\nUn chat dort.\n",
    # Beside the bundles of a `make serve` that could not fetch one.
    f"build/bundles/{PULLED}-int8.log": "no route to host\n",
}
RECORDINGS = {  # with their codecs
    "speech.wav": "pcm_s16le",
    "talk.mp3": "libmp3lame",
    "talk.mp4": "aac",
    "one.m4a": "aac",
    "two.ogg": "libopus",
}
CORPORA = {  # with how many pairs
    "pairs.tsv.gz": 200,
    "test.tsv": 10,
    "data/en-fr/train.tsv.gz": 20,
    "data/en-fr/dev.tsv.gz": 40,
    "data/en-fr/test.tsv.gz": 40,
}


LONG = {"max_position_embeddings": 8192}


def write_surroundings(folder: Path) -> None:
    """Fill a folder with what `make serve` leaves, a clone's folders, and a reader's own files."""
    for name in ("models", "tests", "deploy"):
        (folder / name).symlink_to(ROOT / name)
    for name in ("docs", "build/bundles", "build/new", "data/en-fr", "translated"):
        (folder / name).mkdir(parents=True)
    languages = {"source_languages": ("en",), "target_languages": ("pt",)}
    bundles = [int8_bundle(name, "", folder / "made") for name in SHIPPED]
    bundles.append(int8_bundle(PULLED, "transformer", folder / "made", seed=3, **languages))
    for bundle in bundles:
        bundle.rename(folder / "build/bundles" / f"{bundle.name}-int8")
    shutil.rmtree(folder / "made")
    for name, text in TEXTS.items():
        _write(folder / name, text)
    corpus = (ROOT / "tests/data/en-fr-200.tsv").read_text(encoding="utf-8")
    for name, size in CORPORA.items():
        _write(folder / name, "".join(corpus.splitlines(keepends=True)[:size]))
    [server] = [
        example.text for example in all_examples() if example.origin == "attendant serve --help:3"
    ]
    (folder / "server.yaml").write_text(server)
    pairs = (line.split("\t") for line in PAIRS.splitlines())
    units = [
        TranslationUnit(MemorySegment(source), {"fr": MemorySegment(target)})
        for source, target in pairs
    ]
    (folder / "team.tmx").write_text("".join(write_tmx("en", units)))
    make_docx(folder / "document.docx")
    for name in ("dog.jpg", "snow.png"):
        pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
        Image.fromarray(pixels).save(folder / name)
    for name, codec in RECORDINGS.items():
        write_recording(folder / name, codec, tone(1.5), 16_000)
    for seed, name in enumerate(("run.jsonl", "before.jsonl", "after.jsonl")):
        recordings.written(recordings.simulated(10, 5, seed), folder / name)


def _write(path: Path, text: str) -> None:
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def _encoder(kind: str) -> Callable[[Path], Path]:
    return lambda folder: encoder_bundle(kind, folder)


def _checkpoint(architecture: str) -> Callable[[Path], Path]:
    return lambda folder: tiny_checkpoint(architecture, folder / architecture).folder


def _new_version(name: str) -> Callable[[Path], Path]:
    return lambda folder: int8_bundle(name, "", folder)


def _copy_of_shipped(name: str) -> Callable[[Path], Path]:
    return lambda folder: Path(shutil.copytree(ROOT / "models/checkpoints" / name, folder / name))


def _language_model(family: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        from tests.export.readers.hugging_face import language_models

        path = language_models.save(language_models.random_model(family, **LONG), folder)
        template = {"chat_template": CHAT_TEMPLATE, "bos_token": "<s>", "eos_token": "</s>"}
        (path / "tokenizer_config.json").write_text(json.dumps(template))
        return path

    return make


def _translator(folder: Path) -> Path:
    from tests.export.readers.hugging_face import translators

    translators.save(translators.FAMILIES["marian"], folder)
    return folder


def _encoder_folder(num_labels: int) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        from tests.export.readers.hugging_face import encoders

        return encoders.save(encoders.random_model("bert", num_labels), folder)

    return make


def _captioner(folder: Path) -> Path:
    from tests.export.readers.hugging_face import captioners

    captioners.save("captioning", folder)
    return folder


def _transcriber(folder: Path) -> Path:
    checkpoint = tiny_checkpoint(SOUND_READER, folder / "checkpoint")
    export_cached(checkpoint, folder / "bundle", Precision.INT8, "whisper-base")
    return folder / "bundle"


def _adapter(folder: Path) -> Path:
    from tests.export.readers.hugging_face import test_adapters
    from tests.export.readers.hugging_face.language_models import random_model

    return test_adapters.write(folder, test_adapters.factors(random_model("qwen3"), "q_proj"))


def _gguf(folder: Path) -> Path:
    from tests.export.readers import samples

    return samples.gguf(folder)


def _state(folder: Path) -> Path:
    """What a server has left that was asked to store a glossary."""
    with closing(open_state(folder)) as state:
        terms = {GlossaryPair("en", "fr"): {"dog": "chien"}}
        asyncio.run(GlossaryStore(state).create("", "animals", terms))
    return folder


# Models that a reader has fetched, trained or exported before: small random ones, and the state of
# a server. Each is made where an example names it.
STAND_INS: Mapping[str, Callable[[Path], Path]] = {
    "smollm2-135m-instruct": chatting_bundle,
    "build/bundles/smollm2": chatting_bundle,
    "nllb-200": many_languages_bundle,
    "build/bundles/captions": captioning_bundle,
    "build/bundles/vit-gpt2": captioning_bundle,
    "build/bundles/whisper-base": _transcriber,
    "build/bundles/minilm": _encoder("embedder"),
    "build/bundles/all-minilm": _encoder("embedder"),
    "build/bundles/e5": _encoder("embedder"),
    "build/bundles/sentiment": _encoder("classifier"),
    "build/bundles/entities": _encoder("tagger"),
    "build/bundles/reranker": _encoder("reranker"),
    "build/new/bahdanau-en-fr-int8": _new_version("bahdanau-en-fr"),
    "build/new/transformer-en-fr-int8": _new_version("transformer-en-fr"),
    "build/runs/gru-lm/checkpoint": _checkpoint("recurrent-lm"),
    "build/runs/llama-lm/checkpoint": _checkpoint("llama"),
    "build/runs/mine/checkpoint": _copy_of_shipped("transformer-en-fr"),
    "~/models/opus-mt-en-fr": _translator,
    "~/models/opus-mt-en-is": _translator,
    "~/models/Qwen3-0.6B": _language_model("qwen3"),
    "~/models/Qwen3-4B": _language_model("qwen3"),
    "~/models/SmolLM2-135M-Instruct": _language_model("smollm2"),
    "~/models/all-MiniLM-L6-v2": _encoder_folder(0),
    "~/models/ms-marco-MiniLM-L6-v2": _encoder_folder(1),
    "~/models/vit-gpt2-image-captioning": _captioner,
    "~/runs/support-lora": _adapter,
    "SmolLM2-135M-Instruct.Q4_1.gguf": _gguf,
    "llama.gguf": _gguf,
    "~/.local/state/attendant": _state,
}


def copied(template: Path, folder: Path, text: str, made: Path) -> Path:
    """Copy the surroundings to `folder/clone`, with the models that a text names in it and in
    `folder/home`. made: where those are that another text has named.
    """
    clone = folder / "clone"
    shutil.copytree(template, clone, symlinks=True, copy_function=_link)
    (folder / "home").mkdir()
    for name, make in STAND_INS.items():
        if re.search(rf"(?<![\w/-]){re.escape(name)}(?![\w-])", text):
            place = made / name
            if not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                parts = made / "parts" / name.replace("/", "-")
                parts.mkdir(parents=True)
                make(parts).rename(place)
            path = folder / "home" / name[2:] if name.startswith("~/") else clone / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(place)
    return clone


def _link(source: str, target: str) -> None:
    """Link the files of bundles, which nothing writes; copy others, which examples may write."""
    if "bundles" in Path(source).parts:
        Path(target).hardlink_to(source)
    else:
        shutil.copy2(source, target)
