"""Models as functions from texts to texts: a checkpoint by plain torch loops, a bundle by the
engine that serves it.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from export.decoding import decode
from models.checkpoint import load_checkpoint
from models.data.tokenizer import encode_all, load_tokenizer, read_tokenizer
from serving.bundle.opening import Bundle, open_bundle
from serving.parameters import BeamParams
from serving.request import GenerationRequest

if TYPE_CHECKING:
    from models.evaluation import Translate


def translator(folder: Path, num_beams: int | None = None) -> "Translate":
    """Of the checkpoint or the bundle in `folder`; greedy without `num_beams`.

    Raises CheckpointError or BundleError, ValueError for a language model.
    """
    if (folder / "bundle.json").exists():
        return _of_bundle(open_bundle(folder), num_beams)
    return _of_checkpoint(folder, num_beams)


def _of_checkpoint(folder: Path, num_beams: int | None) -> "Translate":
    from models.registry import load_module
    from models.translation import translate, translate_by_beams

    checkpoint = load_checkpoint(folder)
    _must_translate(checkpoint.config.task)
    module, tokenizer = load_module(checkpoint), read_tokenizer(checkpoint.tokenizer)
    if num_beams is None:
        return lambda texts: translate(module, tokenizer, texts)
    return lambda texts: translate_by_beams(module, tokenizer, texts, num_beams)


def _of_bundle(bundle: Bundle, num_beams: int | None) -> "Translate":
    manifest = bundle.manifest
    _must_translate(manifest.task)
    tokens = manifest.tokens.between(manifest.source_languages[0], manifest.target_languages[0])
    prefix = tokens.prompt_prefix[len(manifest.tokens.prompt_prefix) :]
    source_tokenizer = load_tokenizer(bundle.tokenizer_path)
    target_tokenizer = load_tokenizer(bundle.target_tokenizer_path)
    limit = manifest.limits.max_source_tokens or 0
    limit -= len(tokens.source_prefix + tokens.source_suffix)
    beam = None if num_beams is None else BeamParams(num_beams)

    def translate(texts: list[str]) -> list[str]:
        sources = [
            (*tokens.source_prefix, *ids[:limit], *tokens.source_suffix)
            for ids in encode_all(source_tokenizer, texts)
        ]
        requests = [
            GenerationRequest(str(i), ids, prefix, beam=beam) for i, ids in enumerate(sources)
        ]
        return target_tokenizer.decode_batch(decode(bundle, requests))

    return translate


def _must_translate(task: str) -> None:
    if task != "translate":
        raise ValueError(f"this model is for {task!r}; evaluate scores translations")
