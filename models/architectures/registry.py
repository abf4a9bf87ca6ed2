"""The table of architectures, and the parsing of configurations.

An architecture is a folder of three files: `config.py` defines NameConfig, `module.py` the torch
module Name, and `graph.py` the function `build`, which writes the ONNX graphs. A file is imported
when it is asked for, so that no torch is loaded to export or to serve.
"""

import reprlib
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any

from pydantic import PlainValidator, SerializeAsAny, ValidationError

from models.configs.base import ArchitectureConfig, LanguageModelConfig, TranslationModelConfig
from models.configs.encoder import EncoderConfig
from models.configs.problems import problems_of

# name in a configuration -> "folder:Name"
ARCHITECTURES: dict[str, str] = {
    "bahdanau": "models.architectures.bahdanau:Bahdanau",
    "cho": "models.architectures.cho:Cho",
    "convs2s": "models.architectures.convs2s:ConvS2S",
    "fconv": "models.architectures.fconv:FConv",
    "gpt2": "models.architectures.gpt2:GPT2",
    "gpt-neox": "models.architectures.gpt_neox:GPTNeoX",
    "key-value-lm": "models.architectures.key_value_lm:KeyValueLM",
    "llama": "models.architectures.llama:Llama",
    "lstmn": "models.architectures.lstmn:Lstmn",
    "luong": "models.architectures.luong:Luong",
    "mamba2": "models.architectures.mamba2:Mamba2",
    "nematus": "models.architectures.nematus:Nematus",
    "ngram-lm": "models.architectures.ngram_lm:NgramLM",
    "rctm": "models.architectures.rctm:Rctm",
    "recurrent-lm": "models.architectures.recurrent_lm:RecurrentLM",
    "self-attentive": "models.architectures.self_attentive:SelfAttentive",
    "sutskever": "models.architectures.sutskever:Sutskever",
    "transformer": "models.architectures.transformer:Transformer",
    "transformer-encoder": "models.architectures.transformer_encoder:TransformerEncoder",
    "transformer-ssru": "models.architectures.transformer_ssru:TransformerSSRU",
}

_MOST_OPTIONS = 1000  # each that is unknown is compared with all that are known

AnyConfig = TranslationModelConfig | LanguageModelConfig | EncoderConfig


class ModelConfigError(ValueError):
    """A configuration cannot be used; `problems` lists everything that is wrong with it."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def config_class(architecture: str) -> type[ArchitectureConfig]:
    """Return the class of an architecture's configurations."""
    folder, name = ARCHITECTURES[architecture].split(":")
    found: type[ArchitectureConfig] = getattr(import_module(f"{folder}.config"), f"{name}Config")
    return found


def module_class(architecture: str) -> Callable[[AnyConfig], Any]:
    """Return the class of an architecture's torch module, which is made of a configuration."""
    folder, name = ARCHITECTURES[architecture].split(":")
    found: Callable[[AnyConfig], Any] = getattr(import_module(f"{folder}.module"), name)
    return found


def graph_builder(architecture: str) -> Callable[..., Any]:
    """Return the function that writes an architecture's graphs: of a configuration,
    `export.graph.model.Weights` and a precision it makes an `export.graph.model.ExportedModel`.
    """
    folder, _ = ARCHITECTURES[architecture].split(":")
    found: Callable[..., Any] = import_module(f"{folder}.graph").build
    return found


def parse_config(values: Any) -> AnyConfig:
    """Return the configuration that a JSON or TOML object describes. Raises ModelConfigError."""
    if isinstance(values, ArchitectureConfig):
        return values  # type: ignore[return-value]
    if not isinstance(values, dict):
        raise ModelConfigError([f"expected an object, found {type(values).__name__}"])
    if len(values) > _MOST_OPTIONS:
        raise ModelConfigError([f"has {len(values)} options, more than {_MOST_OPTIONS}"])
    name = values.get("architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise ModelConfigError([_unknown_architecture(values)])
    kind = config_class(name)
    try:
        return kind.model_validate(values)  # type: ignore[return-value]
    except ValidationError as error:
        known = {each: config_class(each) for each in ARCHITECTURES}
        problems = problems_of(kind, values, error.errors(), known)
        raise ModelConfigError(list(problems)) from None


def _unknown_architecture(values: dict[str, Any]) -> str:
    known = f"one of {', '.join(sorted(ARCHITECTURES))}"
    if "architecture" not in values:
        return f"architecture: is required, {known}"
    name = values["architecture"]
    similar = get_close_matches(str(name).lower().replace("_", "-"), ARCHITECTURES, n=1)
    hint = f"; did you mean {similar[0]}?" if similar else ""
    return f"architecture: must be {known} (got {reprlib.repr(name)}){hint}"


ModelConfig = Annotated[SerializeAsAny[AnyConfig], PlainValidator(parse_config)]
