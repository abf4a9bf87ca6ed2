"""Checks of the sources of a manifest: `encoder`, `picture` and `audio` must fit the encode graph.

Each check yields its problems as lines; none raises.
"""

from collections.abc import Iterator
from math import inf, isqrt

from serving.bundle.manifest import (
    BATCH,
    EMBEDDING,
    FEATURES,
    LOGITS,
    PIXELS,
    SOURCE,
    SOURCE_TYPES,
    TOP_IDS,
    TOP_LOGP,
    Activation,
    AudioSpec,
    EncoderSpec,
    Manifest,
    Task,
    TensorSpec,
)

RESAMPLING = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")


def missing(expected: TensorSpec) -> str:
    return f"{expected.name} is missing or not {expected.dtype} {list(expected.shape)}"


_SOURCE_INPUTS = {
    "source_ids": TensorSpec("source_ids", "int64", (BATCH, SOURCE)),
    "source_lengths": TensorSpec("source_lengths", "int32", (BATCH,)),
    SOURCE_TYPES: TensorSpec(SOURCE_TYPES, "int64", (BATCH, SOURCE)),
}


def encoder_problems(manifest: Manifest) -> Iterator[str]:
    """Check that `encoder` is present for tasks that only encode, and for no others."""
    encoder, task = manifest.encoder, manifest.task
    if not task.only_encodes:
        if encoder is not None:
            yield f"encoder: must not be there for task {task}"
        return
    if encoder is None:
        yield f"encoder: missing for task {task}"
        return
    yield from _no_decoding_problems(manifest)
    yield from _head_problems(manifest, encoder)
    if encoder.default_prompt is not None and encoder.default_prompt not in encoder.prompts:
        yield f"encoder.default_prompt: {encoder.default_prompt!r} is not one of encoder.prompts"
    yield from _encode_problems(manifest, encoder)


def picture_problems(manifest: Manifest) -> Iterator[str]:
    """Check that the encode graph reads the pixels that `picture` describes."""
    picture, media_input = manifest.picture, manifest.media_input
    if picture is None:
        if media_input is not None and media_input.name == PIXELS:
            yield f"picture: missing, graphs.encode reads {PIXELS}"
        return
    expected = TensorSpec(PIXELS, "uint8", (BATCH, picture.size, picture.size, 3))
    if media_input != expected:
        yield f"graphs.encode.inputs: {missing(expected)}"
    if manifest.task is not Task.GENERATE:
        yield f"picture: must not be there for task {manifest.task}"
    if not 0 < picture.size <= picture.resized:
        yield f"picture.resized: {picture.resized} is less than picture.size {picture.size}"
    if picture.resample not in RESAMPLING:
        yield f"picture.resample: {picture.resample!r} is not one of {', '.join(RESAMPLING)}"
    num_positions, num_first = manifest.limits.max_source_tokens or 0, picture.num_class_tokens
    if num_first < 0 or isqrt(max(num_positions - num_first, 0)) ** 2 != num_positions - num_first:
        yield "picture.num_class_tokens: the other positions of the source are no square"


def audio_problems(manifest: Manifest) -> Iterator[str]:
    """Check that the encode graph reads the features that `audio` describes, and that its tokens
    are in the vocabulary.
    """
    audio, media_input = manifest.audio, manifest.media_input
    if audio is None:
        if media_input is not None and media_input.name == FEATURES:
            yield f"audio: missing, graphs.encode reads {FEATURES}"
        elif manifest.task is Task.TRANSCRIBE:
            yield f"audio: missing for task {manifest.task}"
        return
    if manifest.task is not Task.TRANSCRIBE:
        yield f"audio: must not be there for task {manifest.task}"
    expected = TensorSpec(FEATURES, "float32", (BATCH, audio.num_mels, audio.num_frames))
    if media_input != expected:
        yield f"graphs.encode.inputs: {missing(expected)}"
    if manifest.limits.max_source_tokens is None:
        yield f"limits.max_source_tokens: missing for task {manifest.task}"
    for name in ("sampling_rate", "num_mels", "num_frames", "hop", "fft_size", "timestamp_step"):
        if not 0 < getattr(audio, name) < inf:
            yield f"audio.{name}: {getattr(audio, name)} is not positive"
    if not 0 <= audio.max_initial_timestamp < inf:
        yield f"audio.max_initial_timestamp: {audio.max_initial_timestamp} is no time in seconds"
    if not audio.languages and (audio.transcribe, audio.translate) != (None, None):
        yield "audio.transcribe, audio.translate: must not be there without audio.languages"
    for name, token_id in _audio_tokens(audio):
        if not 0 <= token_id < manifest.vocab_size:
            vocabulary = f"the vocabulary of {manifest.vocab_size}"
            yield f"audio.{name}: id {token_id} is outside {vocabulary}"


def _audio_tokens(audio: AudioSpec) -> Iterator[tuple[str, int]]:
    """Yield the names and ids of the tokens."""
    for name in (
        "start",
        "previous",
        "no_speech",
        "no_timestamps",
        "first_timestamp",
        "transcribe",
        "translate",
    ):
        token_id = getattr(audio, name)
        if token_id is not None:
            yield name, token_id
    for code, token_id in audio.languages.items():
        yield f"languages.{code}", token_id


def _no_decoding_problems(manifest: Manifest) -> Iterator[str]:
    for name in sorted(manifest.graphs.keys() - {"encode", "encode_attention"}):
        yield f"graphs.{name}: must not be there for task {manifest.task}"
    if manifest.states:
        yield f"states: must be empty for task {manifest.task}"
    if manifest.limits.max_source_tokens is None:
        yield f"limits.max_source_tokens: missing for task {manifest.task}"
    if manifest.limits.max_target_tokens:
        max_target = manifest.limits.max_target_tokens
        yield f"limits.max_target_tokens: {max_target} must be 0 for task {manifest.task}"


def _head_problems(manifest: Manifest, encoder: EncoderSpec) -> Iterator[str]:
    """Check that the encoder's fields, and the window, are those of its task and no others."""
    task = manifest.task
    scores_labels = task in (Task.CLASSIFY, Task.CLASSIFY_TOKENS)
    if task is Task.EMBED and (encoder.dimension is None or encoder.dimension < 1):
        yield f"encoder.dimension: {encoder.dimension} is not positive"
    if task is not Task.EMBED and (encoder.dimension is not None or encoder.is_normalised):
        yield f"encoder.dimension, encoder.is_normalised: must not be there for task {task}"
    if not scores_labels and (encoder.labels or encoder.activation is not Activation.NONE):
        yield f"encoder.labels, encoder.activation: must not be there for task {task}"
    if scores_labels and not encoder.labels:
        yield f"encoder.labels: must not be empty for task {task}"
    if len({*encoder.labels}) < len(encoder.labels):
        yield "encoder.labels: must differ from each other"
    if task is Task.CLASSIFY_TOKENS and encoder.prompts:
        yield f"encoder.prompts: must not be there for task {task}"
    for path, value in (("window", manifest.window or None), ("encoder.mask_id", encoder.mask_id)):
        if (value is None) is (task is Task.FILL_MASK):
            yield f"{path}: must be there for task {Task.FILL_MASK} alone"


def _encode_problems(manifest: Manifest, encoder: EncoderSpec) -> Iterator[str]:
    """Check the inputs of the encode graph, and that it returns what its task asks for."""
    graph = manifest.graphs.get("encode")
    if graph is None:
        return
    inputs = {tensor.name: tensor for tensor in graph.inputs}
    for name, expected in _SOURCE_INPUTS.items():
        tensor_spec = inputs.get(name)
        if tensor_spec != expected and (tensor_spec is not None or name != SOURCE_TYPES):
            yield f"graphs.encode.inputs: {missing(expected)}"
    for tensor in _encode_outputs(manifest, encoder):
        if tensor not in graph.outputs:
            yield f"graphs.encode.outputs: {missing(tensor)}"


def _encode_outputs(manifest: Manifest, encoder: EncoderSpec) -> list[TensorSpec]:
    """Return the outputs of the encode graph, besides attention."""
    labels, window = len(encoder.labels), manifest.window
    match manifest.task:
        case Task.EMBED:
            width = encoder.dimension
            return [] if width is None else [TensorSpec(EMBEDDING, "float32", (BATCH, width))]
        case Task.CLASSIFY_TOKENS:
            return [TensorSpec(LOGITS, "float32", (BATCH, SOURCE, labels))]
        case Task.FILL_MASK:
            top_logp = TensorSpec(TOP_LOGP, "float32", (BATCH, SOURCE, window))
            return [top_logp, TensorSpec(TOP_IDS, "int64", (BATCH, SOURCE, window))]
    return [TensorSpec(LOGITS, "float32", (BATCH, labels))]
