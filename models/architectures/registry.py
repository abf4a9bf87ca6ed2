"""The table of architectures, and the parsing of configurations.

An architecture is a folder of three files: `config.py` defines NameConfig, `module.py` the torch
module Name, and `graph.py` the function `build`, which writes the ONNX graphs. A file is imported
when it is asked for, so that no torch is loaded to export or to serve.

Installed packages add architectures by entry points of the group `attendant.architectures`, whose
names and values are those of the table. They are read where a name is not in the table.
"""

import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any, get_args

from pydantic import PlainValidator, SerializeAsAny, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from models.configs.base import (
    ArchitectureConfig,
    EncoderConfig,
    LanguageModelConfig,
    Section,
    TranslationModelConfig,
)
from models.errors import InputError

_LONGEST_NAME = 60

Configs = Mapping[str, type[ArchitectureConfig]]
Place = tuple[int | str, ...]
Sections = dict[str, type[Section]]


def problems_of(
    kind: type[ArchitectureConfig],
    values: dict[str, Any],
    errors: Iterable[ErrorDetails],
    configs: Configs,
) -> Iterator[str]:
    """Yield the problems of single options, then the conflicts between correct options."""
    wrong: dict[Place, str] = {}
    for error in errors:
        if error["loc"]:
            sections = sections_of(kind, error["loc"][0])
            place = _place(error["loc"], sections)
            message = _message(kind, place, error, sections, configs)
            wrong.setdefault(place[: 2 if sections else 1], f"{_path_text(place)}: {message}")
    yield from wrong.values()
    yield from _misfits(kind, values, {place[0] for place in wrong})


def _misfits(
    kind: type[ArchitectureConfig], values: dict[str, Any], wrong: set[int | str]
) -> Iterator[str]:
    annotations: dict[str, Any] = {name: f.annotation for name, f in kind.model_fields.items()}
    right = {
        name: TypeAdapter(annotation).validate_python(values[name])
        for name, annotation in annotations.items()
        if name in values.keys() - wrong
    }
    config = kind.model_construct(**{"vocab_size": 1, **right})
    for conflict in config.all_conflicts():
        if not wrong & set(conflict.fields):
            yield conflict.message


def sections_of(kind: type[ArchitectureConfig], name: int | str) -> Sections:
    """Return the sections that an option may be, by kind; empty if it is no section."""
    field = kind.model_fields.get(str(name))
    if field is None:
        return {}
    parts = [
        annotation
        for annotation in get_args(field.annotation) or (field.annotation,)
        if _is_part(annotation)
    ]
    if len(parts) == 1:
        return {str(name): parts[0]}
    return {annotation.model_fields["kind"].default: annotation for annotation in parts}


def _is_part(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Section)


def _place(loc: Place, sections: Sections) -> Place:
    """Remove the kind of a section from a path."""
    return (loc[0], *loc[2:]) if len(sections) > 1 else loc


def _message(
    kind: type[ArchitectureConfig],
    place: Place,
    error: ErrorDetails,
    sections: Sections,
    configs: Configs,
) -> str:
    got = f"(got {reprlib.repr(error['input'])})"
    match error["type"]:
        case "missing":
            return "is required"
        case "extra_forbidden" if len(place) == 1:
            return _unknown_option(kind, str(place[0]), configs)
        case "extra_forbidden":
            architecture = str(error["loc"][1]) if len(sections) > 1 else str(place[0])
            return _describe_unknown_option(str(place[1]), architecture, sections)
        case "model_type" | "model_attributes_type":
            return f"must be a table {_shape(sections)} {got}"
        case "union_tag_not_found":
            return f"needs a kind, one of {', '.join(sections)} {got}"
        case "union_tag_invalid":
            return f"its kind must be one of {', '.join(sections)} {got}"
        case "value_error":
            return str(error["ctx"]["error"])
    message = error["msg"][:1].lower() + error["msg"][1:].replace("tuple", "list")  # as in files
    return f"{message} {got}"


def _shape(sections: Sections) -> str:
    """Describe what a table holds: a kind, or its options."""
    if len(sections) > 1:
        return f"that has a kind, one of {', '.join(sections)}"
    options = [option for section in sections.values() for option in section.model_fields]
    return f"of {', '.join(options)}"


def _unknown_option(kind: type[ArchitectureConfig], name: str, configs: Configs) -> str:
    architecture = kind.model_fields["architecture"].default
    for field in kind.model_fields:
        for section in sections_of(kind, field).values():
            for option in section.model_fields:
                if name in (option, f"{field}_{option}") and name != "kind":
                    return f"{architecture} has no such option; {field}.{option} is one"
    return _describe_unknown_option(name, architecture, configs)


def _describe_unknown_option(
    name: str, architecture: str, classes: Mapping[str, type[Section]]
) -> str:
    """Describe an unknown option and guess what was meant: another section's option or a similar
    name.
    """
    message = f"{architecture} has no such option"
    if others := sorted(other for other, config in classes.items() if name in config.model_fields):
        return f"{message}; {', '.join(others)} {'has' if len(others) == 1 else 'have'} it"
    fields = classes[architecture].model_fields
    similar = get_close_matches(name.lower().replace("-", "_"), fields, n=1)
    return f"{message}; did you mean {similar[0]}?" if similar else message


def _path_text(place: Place) -> str:
    """Return a path as text, shortened if it is long or not printable."""
    name = ".".join(map(str, place))
    return name if name.isprintable() and len(name) <= _LONGEST_NAME else reprlib.repr(name)


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
    "mamba": "models.architectures.mamba:Mamba",
    "mamba2": "models.architectures.mamba2:Mamba2",
    "nematus": "models.architectures.nematus:Nematus",
    "ngram-lm": "models.architectures.ngram_lm:NgramLM",
    "rctm": "models.architectures.rctm:Rctm",
    "recurrent-lm": "models.architectures.recurrent_lm:RecurrentLM",
    "rwkv7": "models.architectures.rwkv7:RWKV7",
    "rotary-encoder": "models.architectures.rotary_encoder:RotaryEncoder",
    "rotary-encoder-decoder": "models.architectures.rotary_encoder_decoder:RotaryEncoderDecoder",
    "self-attentive": "models.architectures.self_attentive:SelfAttentive",
    "sutskever": "models.architectures.sutskever:Sutskever",
    "transformer": "models.architectures.transformer:Transformer",
    "transformer-encoder": "models.architectures.transformer_encoder:TransformerEncoder",
    "transformer-ssru": "models.architectures.transformer_ssru:TransformerSSRU",
    "vision-transformer": "models.architectures.vision_transformer:VisionTransformer",
    "whisper": "models.architectures.whisper:Whisper",
}

ENTRY_POINTS = "attendant.architectures"

_MOST_OPTIONS = 1000  # each that is unknown is compared with all that are known

AnyConfig = TranslationModelConfig | LanguageModelConfig | EncoderConfig


class ModelConfigError(InputError):
    """A configuration cannot be used; `problems` lists everything that is wrong with it."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def architecture_names() -> list[str]:
    """Return the names of all architectures: those of the table and of installed packages."""
    return sorted({*ARCHITECTURES, *(entry.name for entry in entry_points(group=ENTRY_POINTS))})


def config_class(architecture: str) -> type[ArchitectureConfig]:
    """Return the class of an architecture's configurations. Raise ModelConfigError for an
    architecture of an installed package that cannot be imported, as the next two functions do.
    """
    config: type[ArchitectureConfig] = _part(architecture, "config", "{}Config")
    return config


def module_class(architecture: str) -> Callable[[AnyConfig], Any]:
    """Return the class of an architecture's torch module, which is made of a configuration."""
    module: Callable[[AnyConfig], Any] = _part(architecture, "module", "{}")
    return module


def graph_builder(architecture: str) -> Callable[..., Any]:
    """Return the function that writes an architecture's graphs: of a configuration,
    `export.graph.model.Weights` and a precision it makes an `export.graph.model.ExportedModel`.
    """
    build: Callable[..., Any] = _part(architecture, "graph", "build")
    return build


def _part(architecture: str, file: str, attribute: str) -> Any:
    """Return what a file of an architecture defines; `{}` stands for the name of its classes."""
    if architecture in ARCHITECTURES:
        folder, name = ARCHITECTURES[architecture].split(":")
        return getattr(import_module(f"{folder}.{file}"), attribute.format(name))
    entry = _installed_entry(architecture)
    try:
        module = import_module(f"{entry.module}.{file}")
        part = getattr(module, attribute.format(entry.attr))
        if file == "config":
            _check_config(architecture, part)
    except Exception as error:  # whatever a package of other people raises when it is imported
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        problem = f"architecture: {_describe(entry)} cannot be used: {reason}"
        raise ModelConfigError([problem]) from error
    return part


def _installed_entry(architecture: str) -> EntryPoint:
    """Return the entry point of an architecture. Raise ModelConfigError if packages share it."""
    entries = {entry.value: entry for entry in entry_points(group=ENTRY_POINTS, name=architecture)}
    if len(entries) > 1:
        packages = " and ".join(sorted(map(_describe, entries.values())))
        raise ModelConfigError([f"architecture: there are {packages}: uninstall one package"])
    [entry] = entries.values()
    return entry


def _check_config(architecture: str, kind: Any) -> None:
    bases = TranslationModelConfig | LanguageModelConfig | EncoderConfig
    if not (isinstance(kind, type) and issubclass(kind, bases)):
        raise TypeError(f"{kind} is no subclass of {bases}")
    if (default := kind.model_fields["architecture"].default) != architecture:
        raise ValueError(f'{kind.__name__} has the architecture "{default}"')


def _describe(entry: EntryPoint) -> str:
    """Return an architecture with its package and version."""
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
    return f"{entry.name} of the package {package}"


def parse_config(values: Any) -> AnyConfig:
    """Return the configuration that a JSON or TOML object describes. Raises ModelConfigError."""
    if isinstance(values, ArchitectureConfig):
        return values  # type: ignore[return-value]
    if not isinstance(values, dict):
        raise ModelConfigError([f"expected an object, found {type(values).__name__}"])
    if len(values) > _MOST_OPTIONS:
        raise ModelConfigError([f"has {len(values)} options, more than {_MOST_OPTIONS}"])
    name = values.get("architecture")
    if not isinstance(name, str) or not _is_known(name):
        raise ModelConfigError([_unknown_architecture(values)])
    kind = config_class(name)
    try:
        return kind.model_validate(values)  # type: ignore[return-value]
    except ValidationError as error:
        classes = {other: config_class(other) for other in ARCHITECTURES} | {name: kind}
        problems = problems_of(kind, values, error.errors(), classes)
        raise ModelConfigError(list(problems)) from None


def _is_known(architecture: str) -> bool:
    """Return whether there is such an architecture. Metadata of packages is read if need be."""
    return architecture in ARCHITECTURES or architecture in architecture_names()


def _unknown_architecture(values: dict[str, Any]) -> str:
    names = architecture_names()
    choices = f"one of {', '.join(names)}"
    if "architecture" not in values:
        return f"architecture: is required, {choices}"
    name = values["architecture"]
    similar = get_close_matches(str(name).lower().replace("_", "-"), names, n=1)
    hint = f"; did you mean {similar[0]}?" if similar else "; packages can add others"
    return f"architecture: must be {choices} (got {reprlib.repr(name)}){hint}"


ModelConfig = Annotated[SerializeAsAny[AnyConfig], PlainValidator(parse_config)]
