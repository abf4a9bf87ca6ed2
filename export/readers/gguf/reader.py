"""GGUF files as checkpoints.

The options, translated into Hugging Face's words, go through the reader of their families.
"""

import math
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import numpy as np

from export.readers.common.checkpoint_files import add_notes, checkpoint_files, write_card
from export.readers.common.decoders.families import FAMILIES
from export.readers.common.language_model_shapes import language_model_shapes
from export.readers.common.options import Options, unused_notes
from export.readers.common.rope import limit_context
from export.readers.common.weights import Computed, StoredTensors, Table, read_weights
from export.readers.gguf.architectures import (
    ARCHITECTURES,
    FUSED,
    FUSED_NAMES,
    NAMES,
    Architecture,
    experts,
)
from export.readers.gguf.container import MAGIC, GGUFContainer, count_bits, read_container
from export.readers.gguf.metadata import ROPE_TABLES, WITHOUT_EFFECT, configuration, conventions
from export.readers.gguf.tokenizer import tokenizer_from_gguf
from models.architectures.registry import AnyConfig, ModelConfigError, parse_config
from models.checkpoint import Checkpoint, CheckpointError
from models.safetensors import Arrays

SUFFIX = ".gguf"


def can_read(path: Path) -> bool:
    """Return whether a file is GGUF by its name or its first bytes."""
    if not path.is_file():
        return False
    if path.suffix == SUFFIX:
        return True
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_checkpoint(path: Path, context_length: int | None = None) -> Checkpoint:
    """context_length: the most tokens that it shall read, if not as many as it could. Raises
    CheckpointError with all that is wrong.
    """
    container = read_container(path)
    problems: list[str] = []
    metadata = Options(path.name, {key: _plain(v) for key, v in container.fields.items()}, problems)
    name = metadata.word("general.architecture")
    if metadata.get("split.count", 1) != 1:
        metadata.refuse("split.count", "is of a model in parts; join them with llama-gguf-split")
    if name not in ARCHITECTURES:
        names = ", ".join(ARCHITECTURES)
        metadata.refuse("general.architecture", f"is not supported; {names} are")
    if problems:
        raise CheckpointError(path, problems)
    values = configuration(name, metadata, container.tensors, problems)
    notes: list[str] = []
    texts = conventions(metadata, notes)
    tokenizer = tokenizer_from_gguf(container.fields, problems)
    if problems or tokenizer is None:
        raise CheckpointError(path, problems)
    options = Options(path.name, values, problems)
    notes += limit_context(options, context_length)
    config, weights = _model(container, options, ARCHITECTURES[name])
    files = checkpoint_files(file_card(container), tokenizer)
    checkpoint = Checkpoint(path, config, weights, texts, files, bits=_bits(container))
    return add_notes(checkpoint, [*notes, *unused_notes(metadata, WITHOUT_EFFECT)])


def _bits(container: GGUFContainer) -> Literal[4, 8] | None:
    """Return the number of bits of the layers' matrices; embedding tables have 8 or more."""
    layers = [tensor for name, tensor in container.tensors.items() if name.startswith("blk.")]
    return count_bits([tensor.kind for tensor in layers if len(tensor.shape) >= 2])


def _model(
    container: GGUFContainer, options: Options, kind: Architecture
) -> tuple[AnyConfig, Arrays]:
    """Read it; options in Hugging Face's words go through the reader of their families."""
    problems, family = options.problems, FAMILIES[options.word("model_type")]
    tensors = StoredTensors(container.stored_tensors(), problems)
    try:
        config: Any = parse_config(family.configure(options))
    except ModelConfigError as error:
        raise CheckpointError(container.path, [*problems, *error.problems]) from None
    epsilon = options.number("rms_norm_eps")
    if not math.isclose(config.norm_epsilon, epsilon, rel_tol=1e-6):  # of OLMo 1
        problems.append(f"attention.{kind.norm} {epsilon} must be {config.norm_epsilon}")
    theirs = family.table(options, config)
    computed = {ours: entry for ours, entry in theirs.names.items() if isinstance(entry, Computed)}
    fused = FUSED_NAMES if FUSED in tensors else {}
    special = {**computed, **kind.names, **kind.changed(options, config), **experts(config)}
    table = Table({**NAMES, **fused, **special}, theirs.changes, ignored=ROPE_TABLES)
    weights = read_weights(language_model_shapes(config), table, tensors)
    tensors.refuse_unused()
    if problems:
        raise CheckpointError(container.path, problems)
    return config, Arrays(weights)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def file_card(container: GGUFContainer) -> bytes:
    """Write name, kind, licence and types of tensors in Markdown, as far as the file says them."""
    path, fields = container.path, container.fields
    kinds = Counter(tensor.kind.name for tensor in container.tensors.values())
    facts = [
        f"Architecture: {fields.get('general.architecture')}",
        f"Tensors: {', '.join(f'{count} {kind}' for kind, count in kinds.most_common())}",
    ]
    for title, key in (("Author", "organization"), ("Licence", "license"), ("Size", "size_label")):
        if value := fields.get(f"general.{key}"):
            facts.append(f"{title}: {value}")
    size = f"{path.stat().st_size / 1e6:.1f} MB"
    origin = f"Imported from the GGUF file `{path.name}` ({size})."
    return write_card(fields.get("general.name") or path.stem, origin, *facts)
