"""Checks what a manifest says of a model that only encodes: its graph, its vector or its labels.

Every check yields its problems as lines; none raises.
"""

from collections.abc import Iterator

from serving.bundle.manifest import (
    BATCH,
    EMBEDDING,
    LOGITS,
    SOURCE,
    SOURCE_TYPES,
    Activation,
    EncoderSpec,
    Manifest,
    Task,
    TensorSpec,
)

_SOURCE_INPUTS = {
    "source_ids": TensorSpec("source_ids", "int64", (BATCH, SOURCE)),
    "source_lengths": TensorSpec("source_lengths", "int32", (BATCH,)),
    SOURCE_TYPES: TensorSpec(SOURCE_TYPES, "int64", (BATCH, SOURCE)),
}


def encoder_problems(manifest: Manifest) -> Iterator[str]:
    """Check that `encoder` is there for the tasks that only encode, and for no other."""
    encoder, task = manifest.encoder, manifest.task
    if not task.only_encodes:
        if encoder is not None:
            yield f"encoder: must not be there for task {task}"
        return
    if encoder is None:
        yield f"encoder: missing for task {task}"
        return
    yield from _no_decoding_problems(manifest)
    yield from _embedder_problems(encoder) if task is Task.EMBED else _classifier_problems(encoder)
    if encoder.default_prompt is not None and encoder.default_prompt not in encoder.prompts:
        yield f"encoder.default_prompt: {encoder.default_prompt!r} is not one of encoder.prompts"
    yield from _encode_problems(manifest, encoder)


def _no_decoding_problems(manifest: Manifest) -> Iterator[str]:
    for name in sorted(manifest.graphs.keys() - {"encode", "encode_attention"}):
        yield f"graphs.{name}: must not be there for task {manifest.task}"
    if manifest.states:
        yield f"states: must be empty for task {manifest.task}"
    if manifest.limits.max_source_tokens is None:
        yield f"limits.max_source_tokens: missing for task {manifest.task}"
    for path, value in (
        ("limits.max_target_tokens", manifest.limits.max_target_tokens),
        ("window", manifest.window),
    ):
        if value:
            yield f"{path}: {value} must be 0 for task {manifest.task}"


def _embedder_problems(encoder: EncoderSpec) -> Iterator[str]:
    if encoder.dimension is None or encoder.dimension < 1:
        yield f"encoder.dimension: {encoder.dimension} is not positive"
    if encoder.labels or encoder.activation is not Activation.NONE:
        yield "encoder.labels, encoder.activation: must not be there for task embed"


def _classifier_problems(encoder: EncoderSpec) -> Iterator[str]:
    if encoder.dimension is not None or encoder.is_normalised:
        yield "encoder.dimension, encoder.is_normalised: must not be there for task classify"
    if not encoder.labels:
        yield "encoder.labels: must not be empty for task classify"
    if len({*encoder.labels}) < len(encoder.labels):
        yield "encoder.labels: must differ from each other"


def _encode_problems(manifest: Manifest, encoder: EncoderSpec) -> Iterator[str]:
    """Check that the graph reads what there is for it, and gives one vector for each row."""
    graph = manifest.graphs.get("encode")
    if graph is None:
        return
    inputs = {tensor.name: tensor for tensor in graph.inputs}
    for name, expected in _SOURCE_INPUTS.items():
        found = inputs.get(name)
        if found != expected and (found is not None or name != SOURCE_TYPES):
            shape = list(expected.shape)
            yield f"graphs.encode.inputs: {name} is missing or not {expected.dtype} {shape}"
    name, width = EMBEDDING, encoder.dimension
    if manifest.task is Task.CLASSIFY:
        name, width = LOGITS, len(encoder.labels)
    if width is not None and TensorSpec(name, "float32", (BATCH, width)) not in graph.outputs:
        yield f"graphs.encode.outputs: {name} is missing or not float32 [batch, {width}]"
