"""The parts that Sentence Transformers adds to a folder, and the special tokens of a text or a
pair.

Modules are listed in `modules.json`, each with a folder of its own. Without that file tokens are
averaged, as Sentence Transformers does.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, normalizers

from export.readers.common.options import Options, read_options
from export.readers.common.weights import StoredTensors, WeightReader
from export.readers.hugging_face.folder import Folder, stored_tensors
from export.readers.hugging_face.tokenizers import encode, token_ids, token_text
from models.files import read_json

MODULES_FILE = "modules.json"
MOST_MODULES = 50
POOLING = {  # theirs -> ours, in the order in which older files put several side by side
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_length",
    "weightedmean": None,
    "lasttoken": "last",
}
FLAGS = {  # of older files
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
ACTIVATIONS = {"Identity": "none", "ReLU": "relu", "GELU": "gelu", "Tanh": "tanh"}


@dataclass
class Modules:
    """dense: as our configuration has it; weights: by our names."""

    pooling: tuple[str, ...] = ("mean",)
    dense: list[dict[str, Any]] = field(default_factory=list)
    normalised: bool = False
    weights: dict[str, WeightReader] = field(default_factory=dict)


def read_modules(folder: Path, problems: list[str]) -> Modules:
    """Read what follows the Transformer; what is not supported is a problem."""
    modules = Modules()
    for place, (kind, path) in enumerate(_list_modules(folder, problems)):
        where = f"{MODULES_FILE}: {kind}"
        if place == 0:
            if kind != "Transformer" or path != folder:
                problems.append(f"{where} must be a Transformer in the folder itself")
        elif kind == "Pooling" and place == 1:
            modules.pooling = _pooling(path, problems)
        elif kind == "Dense" and not modules.normalised:
            _add_dense(modules, path, problems)
        elif kind == "Normalize":
            modules.normalised = True
        elif kind != "Dropout":
            problems.append(f"{where} is not supported as module {place}")
    return modules


def _list_modules(folder: Path, problems: list[str]) -> Iterator[tuple[str, Path]]:
    """Return each module's kind and folder; none without the file."""
    try:
        listed = read_json(folder / MODULES_FILE)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        problems.append(f"{MODULES_FILE} cannot be read: {error}")
        return
    is_list = isinstance(listed, list) and 0 < len(listed) <= MOST_MODULES
    if not is_list or not all(_is_module(module) for module in listed):
        problems.append(f"{MODULES_FILE} is no list of modules with a type and a path")
        return
    for module in listed:
        yield module["type"].rpartition(".")[2], folder / module["path"]


def _is_module(entry: Any) -> bool:
    """Return whether the entry names this folder or a folder in it."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("type"), str):
        return False
    path = entry.get("path")
    return isinstance(path, str) and path in ("", Path(path).name) and path != ".."


def _pooling(path: Path, problems: list[str]) -> tuple[str, ...]:
    options = _options(path, problems)
    modes = _modes(options)
    if wrong := [mode for mode in modes if POOLING.get(mode) is None]:
        problems.append(f"{options.file}: pooling {wrong[0]!r} is not supported")
    options.only("include_prompt", True)
    return tuple(POOLING.get(mode) or "mean" for mode in modes)


def _modes(options: Options) -> list[str]:
    mode = options.get("pooling_mode")
    if isinstance(mode, str):
        return [mode]
    if mode is not None:
        return list(options.words("pooling_mode"))
    return [mode for flag, mode in FLAGS.items() if options.flag(flag, False)] or ["mean"]


def _add_dense(modules: Modules, path: Path, problems: list[str]) -> None:
    options, wrong = _options(path, problems), list[str]()
    sizes = [options.integer(name) for name in ("out_features", "in_features")]
    bias = options.flag("bias", True)
    kind = options.word("activation_function", "torch.nn.modules.activation.Tanh")
    activation = ACTIVATIONS.get(kind.rpartition(".")[2])
    if activation is None:
        options.refuse("activation_function")
    options.only("use_residual", False)
    for name in ("module_input_name", "module_output_name"):
        options.only(name, "sentence_embedding")
    tensors = StoredTensors(stored_tensors(path, wrong), wrong)
    number = len(modules.dense)
    modules.dense.append({"dim": sizes[0], "activation": activation or "none", "bias": bias})
    shapes = {"weight": tuple(sizes), **({"bias": (sizes[0],)} if bias else {})}
    for part, shape in shapes.items():
        ours = f"head.dense.{number}.linear.{part}"
        modules.weights[ours] = tensors.take(f"linear.{part}", shape)
    tensors.refuse_unused()
    problems += [f"{path.name}: {problem}" for problem in wrong]


def _options(path: Path, problems: list[str]) -> Options:
    options = read_options(path / "config.json", problems, is_required=True)
    return Options(f"{path.name}/config.json", options.values, problems)


@dataclass(frozen=True)
class TextOptions:
    """How texts are prepared for a model, and how its scores are computed.

    prompts: by name. default_prompt: a name among them. max_tokens: maximum length of a text, or
    None. lowercases: whether texts are lower-cased before the tokenizer. activation: the activation
    function of a cross-encoder.
    """

    prompts: Mapping[str, str]
    default_prompt: str | None
    max_tokens: int | None
    lowercases: bool
    activation: str


def read_text_options(folder: Path, tokenizer: Options, problems: list[str]) -> TextOptions:
    """Read the options from the additional files of Sentence Transformers."""
    texts = read_options(folder / "config_sentence_transformers.json", problems)
    cuts = read_options(folder / "sentence_bert_config.json", problems)
    prompts = texts.section("prompts")
    named = {name: prompts.word(name, "") for name in prompts.values}
    default = texts.word("default_prompt_name", "") or None
    if default is not None and default not in named:
        texts.refuse("default_prompt_name", "is none of its prompts")
    lengths = [
        length
        for options, name in ((cuts, "max_seq_length"), (tokenizer, "model_max_length"))
        if (length := options.get(name)) is not None
        and isinstance(length, int)
        and 2 <= length < 2**31
    ]
    return TextOptions(
        {name: text for name, text in named.items() if text},
        default if named.get(default or "") else None,
        min(lengths, default=None),
        cuts.flag("do_lower_case", False),
        texts.word("activation_fn", ""),
    )


MARKS = (("cls_token", "[CLS]", "<s>"), ("sep_token", "[SEP]", "</s>"))  # with usual names


@dataclass(frozen=True)
class Template:
    """A template of special tokens: prefix + text + suffix, or prefix + text + separator + text +
    suffix.
    """

    prefix: tuple[int, ...] = ()
    separator: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()


def read_template(folder: Folder, num_separators: int) -> Template:
    """Read it off what the tokenizer does with a pair; one that adds nothing, of older files, gets
    what its family has.
    """
    if folder.tokenizers is None:
        return Template()
    source = folder.tokenizers.source
    encoding = encode(source, "a", folder.problems, is_bare=False, pair="a")
    texts = [place for place, text in enumerate(encoding.sequence_ids) if text is not None]
    if not texts:
        return Template()
    if {0, 1} - {*encoding.sequence_ids}:
        folder.problems.append("tokenizer.json has no place for one of the two texts of a pair")
        return Template()
    second = encoding.sequence_ids.index(1)
    end = max(place for place, text in enumerate(encoding.sequence_ids) if text == 0) + 1
    if len(texts) < len(encoding.ids):
        ids = tuple(encoding.ids)
        return Template(ids[: texts[0]], ids[end:second], ids[texts[-1] + 1 :])
    tokens = token_ids(source)
    cls, sep = (special_id(folder, names, tokens) for names in MARKS)
    return Template((cls,), (sep,) * num_separators, (sep,))


def read_ends(folder: Folder) -> Template:
    """Read what the tokenizer puts around a single text, for models that read no pairs."""
    if folder.tokenizers is None:
        return Template()
    encoding = encode(folder.tokenizers.source, "a", folder.problems, is_bare=False)
    texts = [place for place, text in enumerate(encoding.sequence_ids) if text is not None]
    ids = tuple(encoding.ids)
    return Template(ids[: texts[0]], (), ids[texts[-1] + 1 :]) if texts else Template()


def special_id(folder: Folder, names: tuple[str, ...], ids_by_name: dict[str, int]) -> int:
    """Return the id of a special token, which may have another name in `tokenizer_config.json`.

    names: its role there, then its usual names. ids_by_name: all tokens.
    """
    role, *usual = names
    candidates = [token_text(folder.tokenizer.get(role)), *usual]
    ids = [ids_by_name[name] for name in candidates if name in ids_by_name]
    if not ids:
        folder.problems.append(f"tokenizer: there is no {role}")
    return ids[0] if ids else 0


def strip_tokenizer(tokenizer_json: bytes, *, lowercases: bool) -> bytes:
    """Return the tokenizer without truncation, padding and the clean-up of decoded text, which an
    encoder does not need.

    lowercases: whether texts are lower-cased first.
    """
    tokenizer = Tokenizer.from_str(tokenizer_json.decode())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if isinstance(tokenizer.decoder, decoders.WordPiece):
        tokenizer.decoder = decoders.WordPiece(cleanup=False)
    is_lower = '"lowercase": true' in json.dumps(json.loads(tokenizer_json).get("normalizer"))
    if lowercases and not is_lower:
        after = [tokenizer.normalizer] if tokenizer.normalizer is not None else []
        tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *after])
    return tokenizer.to_str().encode()
