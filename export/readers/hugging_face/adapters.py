"""LoRA adapters (Hu et al. 2021) as peft saves them, merged into the tensors of their base.

A tensor of the base is changed when it is read, each by itself, in fp32:

    V = W + alpha / r * B A            alpha / sqrt(r) with `use_rslora` (Kalajdzievski 2023)
    m * V / |V|, by rows of outputs    with `use_dora` (Liu et al. 2024)

So no family needs to know of adapters, however it transposes, cuts or renames what it reads.
"""

import math
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from export.readers.common.decoders.families import FAMILIES as LANGUAGE_MODELS
from export.readers.common.options import Options, read_options, unused_notes
from export.readers.hugging_face.encoder_families import FAMILIES as ENCODERS
from export.readers.hugging_face.folder import Folder, stored_tensors
from export.readers.hugging_face.multimodal import OF_PICTURES, text_name
from models.safetensors import FLOATS, Array, Stored

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILES = ("adapter_model.safetensors", "adapter_model.bin")
PREFIX = "base_model.model."
MAGNITUDE = "lora_magnitude_vector"
PART = re.compile(rf"(.+)\.(lora_A|lora_B|lora_embedding_A|lora_embedding_B|{MAGNITUDE})(\.\w+)*")
WRAPPER = re.compile(r"\.(base_layer|modules_to_save)(?=\.)")
OUTPUTS = ("lm_head.weight", "embed_out.weight")
TABLE = re.compile(r"(.*\.)?(embed_tokens|embed_in|embeddings|shared|word_embeddings|wte)\.weight")
OF_GPT2 = re.compile(r".*\.(c_attn|c_fc|c_proj|q_attn)")  # its linear layers are [in, out]
# Those that leave the base as it is. Others (pissa, olora, loftq ...) change it.
INITIALISATIONS = (True, False, "gaussian", "eva", "orthogonal")
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {  # with the values that ask for nothing
    "alora_invocation_tokens": (),
    "arrow_config": (),
    "bias": ("none",),
    "corda_config": (),
    "ensure_weight_tying": (False,),
    "init_lora_weights": INITIALISATIONS,
    "kasa_config": (),
    "layer_replication": (),
    "lora_bias": (False,),
    "lora_ga_config": (),
    "megatron_config": (),
    "monteclora_config": (),
    "peft_type": ("LORA",),
    "target_parameters": ([],),
    "trainable_token_indices": ([], {}),
    "use_bdlora": (False,),
    "use_qalora": (False,),
    "velora_config": (),
}
LEFT_OUT = "{name} is of the part that reads pictures, which is left out ({count} tensors are)"
WITHOUT_EFFECT = re.compile(  # the tensors say which modules are adapted; the rest is of training
    r"auto_mapping|base_model_name_or_path|eva_config|exclude_modules|fan_in_fan_out|inference_mode"
    r"|layers_(pattern|to_transform)|loftq_config|lora_dropout|megatron_core|modules_to_save"
    r"|peft_version|qalora_group_size|revision|runtime_config|target_modules|task_type"
)


def merge_adapters(folder: Folder, paths: Sequence[Path]) -> None:
    """Merge adapters into the folder's tensors; several are added up. What is wrong is noted in
    the folder's problems, and what was merged in its card.
    """
    adapters = [_Adapter(path, folder) for path in paths]
    stored = dict(folder.tensors.stored)
    stored |= _own_output(folder, [name for adapter in adapters for name in adapter.names])
    for adapter in adapters:
        stored |= adapter.replace_tensors(stored, others=[a for a in adapters if a is not adapter])
    for adapter in adapters:
        stored |= adapter.add_products(stored)
    folder.tensors.stored = stored
    for adapter in adapters:
        folder.problems.extend(f"{adapter.name}: {problem}" for problem in adapter.problems)
        folder.notes.extend(f"{adapter.name}: {note}" for note in adapter.notes())
        folder.facts.append(f"Merged adapter: `{adapter.name}` ({adapter.kind})")


def _own_output(folder: Folder, names: Sequence[str]) -> dict[str, Stored]:
    """Return the output layer of a language model that stores it together with its table of words,
    if adapters change one of both: they leave the other as it is.
    """
    stored, kind = folder.tensors.stored, folder.config.get("model_type")
    tables = [name for name in names if name in OUTPUTS or TABLE.fullmatch(name)]
    if not tables or kind in ENCODERS or any(name in stored for name in OUTPUTS):
        return {}
    if kind not in LANGUAGE_MODELS:
        names_of_tables = ", ".join(dict.fromkeys(tables))
        folder.problems.append(f"adapters of shared tables are not supported: {names_of_tables}")
        return {}
    table = next((stored[name] for name in stored if TABLE.fullmatch(name)), None)
    return {OUTPUTS[kind == "gpt_neox"]: table} if table else {}


class _Adapter:
    """One folder. Its tensors are kept by the base's names: those that replace one, and the parts
    of what is added to the weight of a module.
    """

    def __init__(self, path: Path, folder: Folder) -> None:
        self.problems: list[str] = []
        self.name = path.resolve().name
        self._folder = folder
        self._whole: dict[str, Stored] = {}
        self._parts: dict[str, dict[str, Stored]] = {}
        self._config = config = read_options(path / CONFIG_FILE, self.problems, is_required=True)
        for name, values in UNSUPPORTED.items():
            config.only(name, *values)
        self._is_dora = config.flag("use_dora", False)
        self._is_rank_stable = config.flag("use_rslora", False)
        self._rank, self._alpha = config.integer("r", 8), config.number("lora_alpha", 8.0)
        self._ranks, self._alphas = config.section("rank_pattern"), config.section("alpha_pattern")
        stored = stored_tensors(path, self.problems, WEIGHTS_FILES)
        tensors = {name.removeprefix(PREFIX): tensor for name, tensor in stored.items()}
        if of_pictures := [name for name in tensors if OF_PICTURES.match(name)]:
            self.problems.append(LEFT_OUT.format(count=len(of_pictures), name=of_pictures[0]))
        for name, tensor in tensors.items():
            if name not in of_pictures:
                self._sort(name, tensor)

    @property
    def kind(self) -> str:
        return f"{'DoRA' if self._is_dora else 'LoRA'} of rank {self._rank}"

    @property
    def names(self) -> list[str]:
        """Return the names of the base's tensors that it changes, as it calls them."""
        return [*self._whole, *(text_name(f"{module}.weight") for module in self._parts)]

    @property
    def _has_gpt2(self) -> bool:
        """Return whether the base, or the decoder of one that reads pictures, is a GPT-2."""
        config = self._folder.config
        decoder = config.values.get("decoder")
        of_decoder = decoder.get("model_type") if isinstance(decoder, dict) else None
        return "gpt2" in (config.get("model_type"), of_decoder)

    def notes(self) -> list[str]:
        """Return notes of a base by another name, and of keys that were not used."""
        trained_for = self._config.word("base_model_name_or_path", "")
        names = (str(self._folder.config.get("_name_or_path")), self._folder.path.resolve().name)
        is_other = Path(trained_for).name not in {Path(name).name for name in names}
        note = f"{CONFIG_FILE}: it was trained for {trained_for!r}, and is merged into {names[1]}"
        return [note] * bool(trained_for and is_other) + unused_notes(self._config, WITHOUT_EFFECT)

    def _sort(self, name: str, tensor: Stored) -> None:
        if tensor.kind not in FLOATS:
            self.problems.append(f"{name} holds {tensor.kind}, which is not supported")
        elif match := PART.fullmatch(name):
            self._parts.setdefault(match[1], {})[match[2]] = tensor
        else:
            self._whole[text_name(WRAPPER.sub("", name))] = tensor

    def replace_tensors(
        self, stored: Mapping[str, Stored], others: Sequence["_Adapter"]
    ) -> dict[str, Stored]:
        """Return the tensors of the base that it replaces (`modules_to_save`)."""
        if others and self._is_dora:
            self.problems.append(f"{CONFIG_FILE}: use_dora True cannot be merged with others")
        replacements = {}
        for name, tensor in self._whole.items():
            theirs = self._find_tensor(name, stored)
            if any(name in other.names for other in others):
                self.problems.append(f"{name} is replaced, and another adapter changes it, too")
            elif theirs and stored[theirs].shape != tensor.shape:
                self._misfit(name, tensor.shape, stored[theirs].shape)
            elif theirs:
                replacements[theirs] = tensor
        return replacements

    def add_products(self, stored: Mapping[str, Stored]) -> dict[str, Stored]:
        """Return the tensors of the base to which it adds a product."""
        if not self._parts and not self._whole and not self.problems:
            self.problems.append("has no tensors")
        merged_tensors = {}
        for module, parts in self._parts.items():
            name = self._find_tensor(text_name(f"{module}.weight"), stored)
            if name and (merged := self._merge(module, parts, stored[name])):
                merged_tensors[name] = merged
        return merged_tensors

    def _find_tensor(self, name: str, stored: Mapping[str, Stored]) -> str | None:
        """Return the base's name of a tensor; base models are saved without a prefix."""
        inner, wider = name.partition(".")[2], f".{name}"
        if name in stored or inner in stored:
            return name if name in stored else inner
        ends = [
            tensor_name
            for tensor_name in stored
            if tensor_name.endswith(wider) and tensor_name.count(".") == wider.count(".")
        ]
        if len(ends) != 1:
            self.problems.append(f"{name} is no tensor of the base")
        return ends[0] if len(ends) == 1 else None

    def _misfit(self, name: str, shape: Sequence[int], expected: Sequence[int]) -> None:
        self.problems.append(f"{name} is of shape {list(shape)}, the base's {list(expected)}")

    def _merge(self, module: str, parts: Mapping[str, Stored], base: Stored) -> Stored | None:
        """Return the base's tensor with the product added. A table of words counts as a layer whose
        input is a token.
        """
        is_table = "lora_embedding_A" in parts
        down, up = (
            parts.get(f"lora_embedding_{part}" if is_table else f"lora_{part}") for part in "AB"
        )
        magnitude = parts.get(MAGNITUDE)
        if not down or not up or len(parts) != 2 + self._is_dora or (is_table and magnitude):
            self.problems.append(f"{module} has parts that do not go together: {', '.join(parts)}")
            return None
        rank, scale = self._scale(module)
        shape = (*up.shape[:1], *down.shape[1:])  # [out, in]
        can_be_transposed = is_table or (self._has_gpt2 and OF_GPT2.fullmatch(module) is not None)
        is_transposed = can_be_transposed and base.shape == shape[::-1]
        if base.shape != (shape[::-1] if is_transposed else shape):
            self._misfit(module, shape, base.shape)
        elif (down.shape[0], *up.shape[1:]) != (rank, rank):
            self.problems.append(f"{module} is of rank {down.shape[0]}, {CONFIG_FILE} says {rank}")
        elif magnitude and magnitude.shape != shape[:1]:
            self._misfit(f"{module}.{MAGNITUDE}", magnitude.shape, shape[:1])
        read = partial(_read_merged, base, down, up, scale, magnitude, is_transposed)
        return Stored("F32", base.shape, read)

    def _scale(self, module: str) -> tuple[int, float]:
        rank = int(_by_pattern(self._ranks, module, self._rank))
        alpha = _by_pattern(self._alphas, module, self._alpha)
        divisor = max(rank, 1)
        return rank, alpha / (math.sqrt(divisor) if self._is_rank_stable else divisor)


def _read_merged(
    base: Stored,
    down: Stored,
    up: Stored,
    scale: float,
    magnitude: Stored | None,
    is_transposed: bool,
) -> Array:
    weight = base.read().T if is_transposed else base.read()
    weight = weight + np.float32(scale) * (up.read() @ down.read())
    if magnitude is not None:
        weight *= (magnitude.read() / np.linalg.norm(weight, axis=1))[:, None]
    return weight.T if is_transposed else weight


def _by_pattern(patterns: Options, module: str, default: float) -> float:
    """Return the number of the first regular expression that the end of the name matches."""
    patterns.use(*patterns.values)
    for pattern in patterns.values:
        try:
            if re.fullmatch(rf"(.*\.)?({pattern})", module):
                return patterns.number(pattern)
        except re.error:
            patterns.refuse(pattern, "is no regular expression")
    return default
