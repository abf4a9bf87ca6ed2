"""Export a checkpoint to a bundle: build the graphs, write the files and the model card, and verify
the bundle before it is put in place.
"""

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx_ir as ir
from tqdm import tqdm

from export.bundling.atomic_folder import atomic_folder
from export.bundling.parity import AnyParity, RecordedParity
from export.bundling.weight_file import WeightFile
from export.graph.blocks import NO_OUTLIERS
from export.graph.choice import with_select
from export.graph.model import TARGETS, ExportedModel, Weights
from export.graph.writer import Array
from models import conventions
from models.architectures.registry import AnyConfig, graph_builder
from models.architectures.vision_transformer.config import VisionTransformerConfig
from models.architectures.whisper.config import WhisperConfig
from models.checkpoint import CARD_FILE, QUALITY_FILE, Checkpoint, CheckpointError
from models.configs.base import (
    EmbeddingHead,
    EncoderConfig,
    LanguageModelConfig,
    MaskedWordHead,
)
from models.configs.transformer import DecoderOnlyConfig
from models.conventions import Conventions
from models.errors import InputError
from serving.bundle.manifest import (
    FORMAT_VERSION,
    Activation,
    AudioSpec,
    EncoderSpec,
    LanguageIds,
    LogitsProcessors,
    Manifest,
    PictureSpec,
    Precision,
    Task,
    Tokens,
)
from serving.bundle.opening import Bundle, open_bundle, read_dataclass, write_manifest
from serving.bundle.validation import manifest_problems
from serving.errors import BundleError

Verify = Callable[[Checkpoint, Bundle], AnyParity]

PRECISIONS = {
    Precision.FP32: "32-bit floating point",
    Precision.FP16: "16-bit floating point, for CUDA",
    Precision.BF16: "16-bit floating point with the range of 32 bits (bfloat16), for CUDA alone",
    Precision.INT8: "matrix products of 8-bit integers; the rest fp32",
    Precision.INT4: "weights in 4 bits, what they multiply and tables of words in 8; the rest fp32",
}


def render_card(
    card: str,
    name: str,
    precision: Precision,
    parity: AnyParity | None,
    recorded: RecordedParity | None = None,
) -> str:
    """Return the model card in Markdown: the checkpoint's ``own``, then this bundle's parity or, if
    it was not compared, what was recorded of the same weights and precision.
    """
    if parity:
        comparison = f"Compared with the trained torch model in fp32:\n\n{parity.as_markdown()}"
    elif recorded:
        comparison = (
            "Not compared with the torch model at this export. When the checkpoint was shipped, its"
            f" graphs were (`{recorded.command}`):\n\n{recorded.parity.as_markdown()}"
        )
    else:
        comparison = "Not compared with the torch model."
    return f"""{(card or f"# {name}").rstrip()}

## This bundle

ONNX graphs in {precision} ({PRECISIONS[precision]}).

{comparison}
"""


def list_special_tokens(config: AnyConfig, conventions: Conventions) -> Tokens:
    return Tokens(
        pad=config.pad_id,
        bos=config.bos_id,
        eos=config.eos_id,
        source_prefix=conventions.source_prefix,
        source_suffix=conventions.source_suffix,
        prompt_prefix=conventions.prompt_prefix,
        stop=conventions.stop,
        unk=conventions.unk,
        forced_eos=conventions.forced_eos,
        sources=_language_ids(conventions.sources),
        targets=_language_ids(conventions.targets),
    )


def read_logits_processors(conventions: Conventions) -> LogitsProcessors:
    """Return the logits processors of every request."""
    problems: list[str] = []
    processors = read_dataclass(LogitsProcessors, dict(conventions.logits_processors), problems)
    assert processors is not None, problems
    return processors


def build_encoder_spec(config: AnyConfig, conventions: Conventions) -> EncoderSpec | None:
    """Return what comes out of a model that only encodes; None of others."""
    if not isinstance(config, EncoderConfig):
        return None
    spec = EncoderSpec(
        separator=conventions.separator,
        prompts=dict(conventions.prompts),
        default_prompt=conventions.default_prompt,
    )
    head = config.head
    if isinstance(head, EmbeddingHead):
        return replace(spec, dimension=config.dense_dim, is_normalised=head.normalised)
    if isinstance(head, MaskedWordHead):
        return replace(spec, mask_id=head.mask_id)
    return replace(spec, labels=head.labels, activation=Activation(head.scores))


def build_picture_spec(config: AnyConfig) -> PictureSpec | None:
    """Return how pictures become pixels; None for models that read none."""
    if not isinstance(config, VisionTransformerConfig):
        return None
    vision = config.vision
    resized = vision.resized or vision.image_size
    return PictureSpec(vision.image_size, resized, vision.resample, vision.num_class_tokens)


def build_audio_spec(config: AnyConfig) -> AudioSpec | None:
    """Return how sound becomes features, and the tokens of transcripts; None for models that read
    none.
    """
    if not isinstance(config, WhisperConfig):
        return None
    audio = config.audio
    options = audio.model_dump(exclude={"alignment_heads"})
    return AudioSpec(**options, start=config.bos_id, timestamp_step=audio.timestamp_step)


def _language_ids(
    ids_by_code: Mapping[str, conventions.AddedLanguageIds],
) -> dict[str, LanguageIds]:
    return {code: LanguageIds(**vars(ids)) for code, ids in ids_by_code.items()}


class BundleWriter:
    """A writer of one exported model: graphs, the checkpoint's files, manifest and card."""

    def __init__(
        self, checkpoint: Checkpoint, model: ExportedModel, precision: Precision, name: str
    ) -> None:
        self._checkpoint, self._model = checkpoint, model
        self._precision, self._name = precision, name
        quality = training_quality(checkpoint)
        self._recorded = RecordedParity.from_quality(quality, precision)
        self._quality = {name: value for name, value in quality.items() if name != "parity"}

    def write_files(self, folder: Path) -> None:
        """Write the graphs and what the bundle takes over from the checkpoint but the model card.
        The weights are in ``folder`` already.
        """
        for graph in self._model.graphs:
            ir.save(graph.model, folder / f"{graph.name}.onnx")
        for name, content in self._checkpoint.files.items():
            if name not in (QUALITY_FILE, CARD_FILE):  # the manifest has what the first one says
                (folder / name).write_bytes(content)

    def write_card(self, folder: Path, parity: AnyParity | None) -> None:
        card = self._checkpoint.files.get(CARD_FILE, b"").decode()
        card = render_card(card, self._name, self._precision, parity, self._recorded)
        (folder / CARD_FILE).write_text(card, encoding="utf-8")

    def write_manifest(self, folder: Path, parity: AnyParity | None = None) -> Bundle:
        """Write the manifest of the files in ``folder``, with the figures of the verification if
        there was one. Raises BundleError with every problem of it.
        """
        manifest = write_manifest(folder, self._build_manifest(parity))
        if problems := [*manifest_problems(manifest)]:
            raise BundleError(folder, problems)
        return Bundle(folder, manifest)

    def _build_manifest(self, parity: AnyParity | None) -> Manifest:
        config, model = self._checkpoint.config, self._model
        conventions = self._checkpoint.conventions
        source_languages, target_languages = _language_codes(config)
        figures = {"parity": parity.as_json()} if parity else {}
        return Manifest(
            format_version=FORMAT_VERSION,
            name=self._name,
            task=Task(config.task),
            architecture=config.architecture,
            precision=self._precision,
            source_languages=source_languages,
            target_languages=target_languages,
            tokens=list_special_tokens(config, conventions),
            limits=model.limits,
            graphs={graph.name: graph.spec(f"{graph.name}.onnx") for graph in model.graphs},
            states=model.states,
            vocab_size=config.vocab_size,
            source_vocab_size=getattr(config, "source_vocab_size", None),
            window=model.window,
            files={},
            chat_template=conventions.chat_template,
            translation_message=dict(conventions.translation_message),
            generation=dict(conventions.generation),
            logits_processors=read_logits_processors(conventions),
            alignment_heads=model.alignment_heads,
            attention={str(kind): shape for kind, shape in model.attention.items()},
            quality=self._quality | figures,
            encoder=build_encoder_spec(config, conventions),
            picture=build_picture_spec(config),
            audio=build_audio_spec(config),
            domain=config.domain,
            origin=self._checkpoint.origin or self._checkpoint.folder.resolve().name,
        )


def _language_codes(config: AnyConfig) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the codes of source and target; those of a language model are the same, an encoder has
    none.
    """
    if isinstance(config, EncoderConfig):
        return (), ()
    if isinstance(config, LanguageModelConfig):
        return config.languages, config.languages
    return config.source_languages, config.target_languages


def training_quality(checkpoint: Checkpoint) -> dict[str, Any]:
    """Read what training measured, if the checkpoint says."""
    try:
        quality = json.loads(checkpoint.files.get(QUALITY_FILE, b"{}"))
    except ValueError as error:
        raise CheckpointError(checkpoint.folder, [f"{QUALITY_FILE} is not JSON: {error}"]) from None
    if not isinstance(quality, dict):
        raise CheckpointError(checkpoint.folder, [f"{QUALITY_FILE} is not an object"])
    return quality


def build_model(
    checkpoint: Checkpoint, precision: Precision, weights: Weights | None = None
) -> ExportedModel:
    """Build the graphs and states of a checkpoint, one weight after the other put into the store of
    ``weights``, by default in memory. Raises CheckpointError with all its problems.
    """
    weights = weights or Weights(checkpoint.weights, checkpoint.quantised)
    build = graph_builder(checkpoint.config.architecture)
    model: ExportedModel = build(checkpoint.config, weights, precision)
    weights.finish(checkpoint.folder)
    return model


def export_checkpoint(
    checkpoint: Checkpoint,
    folder: Path,
    precision: Precision,
    name: str | None = None,
    verify: Verify | None = None,
    *,
    has_fp16_cache: bool = False,
) -> AnyParity | None:
    """Write a bundle of the checkpoint to ``folder``, whole or not at all. Raises InputError if it
    is to have a cache of fp16 and is none of a language model for CPUs.

    ``verify`` compares the written bundle with the checkpoint; what it finds goes into the card.
    has_fp16_cache: whether keys and values are in fp16.
    """
    if has_fp16_cache:
        _check_fp16_cache(checkpoint, precision)
    with atomic_folder(folder) as temporary:
        writer = _write_files(
            checkpoint,
            temporary,
            precision,
            name or checkpoint.name,
            has_fp16_cache=has_fp16_cache,
        )
        parity = verify(checkpoint, writer.write_manifest(temporary)) if verify else None
        writer.write_card(temporary, parity)
        writer.write_manifest(temporary, parity)
        open_bundle(temporary)  # read as a server reads it
    return parity


def _check_fp16_cache(checkpoint: Checkpoint, precision: Precision) -> None:
    if not isinstance(checkpoint.config, DecoderOnlyConfig):
        raise InputError("--kv-cache fp16 is for language models that attend to their text")
    if TARGETS[precision].is_cuda:
        raise InputError(f"--kv-cache is for CPUs: in {precision} keys and values are, too")


def _write_files(
    checkpoint: Checkpoint,
    folder: Path,
    precision: Precision,
    name: str,
    *,
    has_fp16_cache: bool,
) -> BundleWriter:
    """Write weights, graphs and the checkpoint's files."""
    arrays = checkpoint.weights
    with (
        contextlib.closing(WeightFile(folder)) as file,
        tqdm(total=len(arrays), desc="weights", leave=False, disable=None) as bar,
    ):
        weights = Weights(arrays, checkpoint.quantised, file.store, bar.update)
        weights.cache_dtype = "float16" if has_fp16_cache else None
        is_quantised = precision in (Precision.INT8, Precision.INT4)
        if is_quantised and isinstance(checkpoint.config, DecoderOnlyConfig):
            weights.outliers = _find_outliers(checkpoint, weights, file, folder, precision)
        model = with_select(build_model(checkpoint, precision, weights), precision)
    writer = BundleWriter(checkpoint, model, precision, name)
    writer.write_files(folder)
    return writer


def _find_outliers(
    checkpoint: Checkpoint, weights: Weights, file: WeightFile, folder: Path, precision: Precision
) -> Mapping[str, Array]:
    """Run graphs that tell how large inputs are. ``file`` is in ``folder``."""
    from export.bundling.outliers import find_outliers  # it alone needs ONNX Runtime

    assert isinstance(checkpoint.config, DecoderOnlyConfig)
    weights.outliers = None
    build = graph_builder(checkpoint.config.architecture)
    model: ExportedModel = build(checkpoint.config, weights, precision)
    if weights.have_problems:  # the bundle's graphs are refused, with all of them
        return NO_OUTLIERS
    file.flush()
    return find_outliers(model.graphs, checkpoint.config, folder)
