"""All architectures by name, and how a configuration is read: everything wrong is said at once."""

import reprlib
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import PlainValidator, SerializeAsAny, ValidationError
from pydantic_core import ErrorDetails

from models.configs.base import ArchitectureConfig, LanguageModelConfig, TranslationModelConfig
from models.configs.language_models.gpt2 import GPT2Config
from models.configs.language_models.gpt_neox import GPTNeoXConfig
from models.configs.language_models.key_value_lm import KeyValueLMConfig
from models.configs.language_models.llama import LlamaConfig
from models.configs.language_models.mamba2 import Mamba2Config
from models.configs.language_models.ngram_lm import NgramLMConfig
from models.configs.language_models.recurrent_lm import RecurrentLMConfig
from models.configs.translators.bahdanau import BahdanauConfig
from models.configs.translators.cho import ChoConfig
from models.configs.translators.convs2s import ConvS2SConfig
from models.configs.translators.lstmn import LstmnConfig
from models.configs.translators.luong import LuongConfig
from models.configs.translators.rctm import RctmConfig
from models.configs.translators.sutskever import SutskeverConfig
from models.configs.translators.transformer import TransformerConfig
from models.configs.translators.transformer_ssru import TransformerSSRUConfig

CONFIGS: dict[str, type[ArchitectureConfig]] = {
    "bahdanau": BahdanauConfig,
    "cho": ChoConfig,
    "convs2s": ConvS2SConfig,
    "gpt2": GPT2Config,
    "gpt-neox": GPTNeoXConfig,
    "key-value-lm": KeyValueLMConfig,
    "llama": LlamaConfig,
    "lstmn": LstmnConfig,
    "luong": LuongConfig,
    "mamba2": Mamba2Config,
    "ngram-lm": NgramLMConfig,
    "rctm": RctmConfig,
    "recurrent-lm": RecurrentLMConfig,
    "sutskever": SutskeverConfig,
    "transformer": TransformerConfig,
    "transformer-ssru": TransformerSSRUConfig,
}

_LONGEST_NAME = 60
_MOST_OPTIONS = 1000  # each that is unknown is compared with all that are known

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
    if len(values) > _MOST_OPTIONS:
        raise ModelConfigError([f"has {len(values)} options, more than {_MOST_OPTIONS}"])
    name = values.get("architecture")
    kind = CONFIGS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ModelConfigError([_unknown_architecture(values)])
    try:
        return kind.model_validate(values)  # type: ignore[return-value]
    except ValidationError as error:
        raise ModelConfigError(list(_problems(kind, values, error.errors()))) from None


def _problems(
    kind: type[ArchitectureConfig], values: dict[str, Any], errors: list[ErrorDetails]
) -> Iterator[str]:
    """Yield those of each field alone, then of those that are right by themselves and do not fit
    together.
    """
    wrong: dict[int | str, ErrorDetails] = {}
    for error in errors:
        for name in error["loc"][:1]:
            wrong.setdefault(name, error)
    for name, error in wrong.items():
        place = ".".join(map(str, error["loc"]))
        yield f"{_shown(place)}: {_message(kind, str(name), error)}"
    right = {name: values[name] for name in kind.model_fields if name in values.keys() - wrong}
    config = kind.model_construct(**{"vocab_size": 1, **right})
    for misfit in config.all_misfits():
        if not wrong.keys() & set(misfit.fields):
            yield misfit.message


def _message(kind: type[ArchitectureConfig], name: str, error: ErrorDetails) -> str:
    match error["type"]:
        case "missing":
            return "is required"
        case "extra_forbidden":
            return (
                f"{kind.model_fields['architecture'].default} has no such option{_hint(kind, name)}"
            )
    message = error["msg"][:1].lower() + error["msg"][1:].replace("tuple", "list")  # as in files
    return f"{message} (got {reprlib.repr(error['input'])})"


def _hint(kind: type[ArchitectureConfig], name: str) -> str:
    """Guess what may have been meant: one of another architecture, or of a similar name."""
    if others := sorted(other for other, each in CONFIGS.items() if name in each.model_fields):
        return f"; {', '.join(others)} {'has' if len(others) == 1 else 'have'} it"
    similar = get_close_matches(name.lower().replace("-", "_"), kind.model_fields, n=1)
    return f"; did you mean {similar[0]}?" if similar else ""


def _unknown_architecture(values: dict[str, Any]) -> str:
    known = f"one of {', '.join(sorted(CONFIGS))}"
    if "architecture" not in values:
        return f"architecture: is required, {known}"
    name = values["architecture"]
    similar = get_close_matches(str(name).lower().replace("_", "-"), CONFIGS, n=1)
    hint = f"; did you mean {similar[0]}?" if similar else ""
    return f"architecture: must be {known} (got {reprlib.repr(name)}){hint}"


def _shown(name: str) -> str:
    """A key as it is, if it can be read."""
    return name if name.isprintable() and len(name) <= _LONGEST_NAME else reprlib.repr(name)


ModelConfig = Annotated[SerializeAsAny[AnyConfig], PlainValidator(parse_config)]
