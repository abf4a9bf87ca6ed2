"""Lists all architectures by name, and reads a configuration."""

import reprlib
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import PlainValidator, SerializeAsAny, ValidationError

from models.configs.base import ArchitectureConfig, LanguageModelConfig, TranslationModelConfig
from models.configs.encoders.encoder import EncoderConfig
from models.configs.encoders.self_attentive import SelfAttentiveConfig
from models.configs.encoders.transformer_encoder import TransformerEncoderConfig
from models.configs.language_models.gpt2 import GPT2Config
from models.configs.language_models.gpt_neox import GPTNeoXConfig
from models.configs.language_models.key_value_lm import KeyValueLMConfig
from models.configs.language_models.llama import LlamaConfig
from models.configs.language_models.mamba2 import Mamba2Config
from models.configs.language_models.ngram_lm import NgramLMConfig
from models.configs.language_models.recurrent_lm import RecurrentLMConfig
from models.configs.problems import problems_of
from models.configs.translators.bahdanau import BahdanauConfig
from models.configs.translators.cho import ChoConfig
from models.configs.translators.convs2s import ConvS2SConfig
from models.configs.translators.fconv import FConvConfig
from models.configs.translators.lstmn import LstmnConfig
from models.configs.translators.luong import LuongConfig
from models.configs.translators.nematus import NematusConfig
from models.configs.translators.rctm import RctmConfig
from models.configs.translators.sutskever import SutskeverConfig
from models.configs.translators.transformer import TransformerConfig
from models.configs.translators.transformer_ssru import TransformerSSRUConfig

CONFIGS: dict[str, type[ArchitectureConfig]] = {
    "bahdanau": BahdanauConfig,
    "cho": ChoConfig,
    "convs2s": ConvS2SConfig,
    "fconv": FConvConfig,
    "gpt2": GPT2Config,
    "gpt-neox": GPTNeoXConfig,
    "key-value-lm": KeyValueLMConfig,
    "llama": LlamaConfig,
    "lstmn": LstmnConfig,
    "luong": LuongConfig,
    "mamba2": Mamba2Config,
    "nematus": NematusConfig,
    "ngram-lm": NgramLMConfig,
    "rctm": RctmConfig,
    "recurrent-lm": RecurrentLMConfig,
    "self-attentive": SelfAttentiveConfig,
    "sutskever": SutskeverConfig,
    "transformer": TransformerConfig,
    "transformer-encoder": TransformerEncoderConfig,
    "transformer-ssru": TransformerSSRUConfig,
}

_MOST_OPTIONS = 1000  # each that is unknown is compared with all that are known

AnyConfig = TranslationModelConfig | LanguageModelConfig | EncoderConfig


class ModelConfigError(ValueError):
    """Says why a configuration cannot be used; `problems` lists everything found wrong."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def parse_config(values: Any) -> AnyConfig:
    """Make the configuration that `values`, a JSON or TOML object, describe.

    Raises ModelConfigError.
    """
    if isinstance(values, ArchitectureConfig):
        return values  # type: ignore[return-value]
    if not isinstance(values, dict):
        raise ModelConfigError([f"expected an object, found {type(values).__name__}"])
    if len(values) > _MOST_OPTIONS:
        raise ModelConfigError([f"has {len(values)} options, more than {_MOST_OPTIONS}"])
    name = values.get("architecture")
    kind = CONFIGS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ModelConfigError([_unknown_architecture(values)])
    try:
        return kind.model_validate(values)  # type: ignore[return-value]
    except ValidationError as error:
        problems = problems_of(kind, values, error.errors(), CONFIGS)
        raise ModelConfigError(list(problems)) from None


def _unknown_architecture(values: dict[str, Any]) -> str:
    known = f"one of {', '.join(sorted(CONFIGS))}"
    if "architecture" not in values:
        return f"architecture: is required, {known}"
    name = values["architecture"]
    similar = get_close_matches(str(name).lower().replace("_", "-"), CONFIGS, n=1)
    hint = f"; did you mean {similar[0]}?" if similar else ""
    return f"architecture: must be {known} (got {reprlib.repr(name)}){hint}"


ModelConfig = Annotated[SerializeAsAny[AnyConfig], PlainValidator(parse_config)]
