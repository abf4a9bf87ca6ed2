"""All architectures by name, and how a configuration is read: everything wrong is said at once."""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import PlainValidator, SerializeAsAny, ValidationError
from pydantic_core import ErrorDetails

from models.configs.bahdanau import BahdanauConfig
from models.configs.base import ArchitectureConfig, LanguageModelConfig, TranslationModelConfig
from models.configs.cho import ChoConfig
from models.configs.convs2s import ConvS2SConfig
from models.configs.gpt2 import GPT2Config
from models.configs.key_value_lm import KeyValueLMConfig
from models.configs.llama import LlamaConfig
from models.configs.lstmn import LstmnConfig
from models.configs.luong import LuongConfig
from models.configs.ngram_lm import NgramLMConfig
from models.configs.rctm import RctmConfig
from models.configs.recurrent_lm import RecurrentLMConfig
from models.configs.sutskever import SutskeverConfig
from models.configs.transformer import TransformerConfig
from models.configs.transformer_ssru import TransformerSSRUConfig

CONFIGS: dict[str, type[ArchitectureConfig]] = {
    "bahdanau": BahdanauConfig,
    "cho": ChoConfig,
    "convs2s": ConvS2SConfig,
    "gpt2": GPT2Config,
    "key-value-lm": KeyValueLMConfig,
    "llama": LlamaConfig,
    "lstmn": LstmnConfig,
    "luong": LuongConfig,
    "ngram-lm": NgramLMConfig,
    "rctm": RctmConfig,
    "recurrent-lm": RecurrentLMConfig,
    "sutskever": SutskeverConfig,
    "transformer": TransformerConfig,
    "transformer-ssru": TransformerSSRUConfig,
}

AnyConfig = TranslationModelConfig | LanguageModelConfig


class ModelConfigError(ValueError):
    """A configuration that cannot be used; `problems` lists everything found wrong."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def parse_config(values: Any) -> AnyConfig:
    """The configuration that `values`, a JSON or TOML object, describe.

    Raises ModelConfigError.
    """
    if isinstance(values, ArchitectureConfig):
        return values  # type: ignore[return-value]
    if not isinstance(values, dict):
        raise ModelConfigError([f"expected an object, found {type(values).__name__}"])
    kind = CONFIGS.get(values.get("architecture", ""))
    if kind is None:
        raise ModelConfigError([_unknown_architecture(values)])
    try:
        return kind.model_validate(values)  # type: ignore[return-value]
    except ValidationError as error:
        raise ModelConfigError(list(_problems(kind, values, error.errors()))) from None


def _problems(
    kind: type[ArchitectureConfig], values: dict[str, Any], errors: list[ErrorDetails]
) -> Iterator[str]:
    """Of fields alone, then of those that are right by themselves and do not fit together."""
    wrong = {str(error["loc"][0]): error for error in errors if error["loc"]}
    for name, error in wrong.items():
        yield f"{name}: {_message(kind, name, error)}"
    config = kind.model_construct(**{k: v for k, v in values.items() if k not in wrong})
    for misfit in config.misfits():
        if not wrong.keys() & set(misfit.fields):
            yield misfit.message


def _message(kind: type[ArchitectureConfig], name: str, error: ErrorDetails) -> str:
    if error["type"] != "extra_forbidden":
        return error["msg"]
    others = sorted(other for other, each in CONFIGS.items() if name in each.model_fields)
    where = f" ({', '.join(others)} has)" if others else ""
    return f"{kind.model_fields['architecture'].default} has no such option{where}"


def _unknown_architecture(values: dict[str, Any]) -> str:
    known = ", ".join(sorted(CONFIGS))
    if "architecture" not in values:
        return f"architecture is missing: one of {known}"
    return f"architecture: {values['architecture']!r} is none of {known}"


ModelConfig = Annotated[SerializeAsAny[AnyConfig], PlainValidator(parse_config)]
