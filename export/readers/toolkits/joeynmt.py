"""Folders of JoeyNMT (Kreutzer et al. 2019), 1.x and 2.x.

    config.yaml  best.ckpt  src_vocab.txt  trg_vocab.txt

Sources end with </s>; targets begin with <s> and end before </s> (joeynmt/datasets.py). The source
is the folder, or a checkpoint in it.
"""

from pathlib import Path
from typing import Any

from export.readers.common.options import Options, read_yaml
from export.readers.common.torch_files import is_torch_file, read_torch
from export.readers.toolkits.joeynmt_recurrent import RECURRENT
from export.readers.toolkits.joeynmt_transformer import OUTPUT, SOURCE, TARGET, TRANSFORMER
from export.readers.toolkits.toolkit import Toolkit, ToolkitReader, Vocabularies
from models.checkpoint import UNKNOWN_LANGUAGE, Checkpoint, CheckpointError
from models.files import read_text

CONFIG = "config.yaml"
ENDING = ".ckpt"
BEST = ("best.ckpt", "latest.ckpt")  # links to one of the others
SPECIAL = {"unk": "<unk>", "pad": "<pad>", "bos": "<s>", "eos": "</s>"}
SIDES = {"src": "source", "trg": "target"}
MODELS = {"recurrent": RECURRENT, "transformer": TRANSFORMER}


def can_read(source: Path) -> bool:
    """Return whether the source is a checkpoint of JoeyNMT, or a folder with one."""
    path = _find_file(source)
    has_config = path is not None and (path.parent / CONFIG).is_file()
    return path is not None and has_config and is_torch_file(path)


def _find_file(source: Path) -> Path | None:
    if source.is_file():
        return source if source.suffix == ENDING else None
    if not source.is_dir():
        return None
    named = [source / name for name in BEST if (source / name).is_file()]
    paths = named or [path for path in source.iterdir() if path.suffix == ENDING and path.is_file()]
    return paths[0] if named or len(paths) == 1 else None


def read_checkpoint(source: Path) -> Checkpoint:
    """Return the model, its weights not read yet. Raises CheckpointError with every problem."""
    path = _find_file(source)
    if path is None:
        raise CheckpointError(source, ["it holds no checkpoint, or several"])
    problems: list[str] = []
    options = Options(CONFIG, read_yaml(path.parent / CONFIG, problems), problems)
    tree = read_torch(path)
    tensors = tree.get("model_state") if isinstance(tree, dict) else None
    if not isinstance(tensors, dict):
        raise CheckpointError(path, ["it is no checkpoint of JoeyNMT: it has no model_state"])
    return ToolkitReader(JOEYNMT, path, options, tensors, source).read_checkpoint()


def _find_model(reader: ToolkitReader) -> str | None:
    """Return the type of the encoder, which the decoder must have, too."""
    model = reader.options.section("model")
    encoder, decoder = model.section("encoder"), model.section("decoder")
    name = encoder.word("type", "recurrent")
    encoder.only("type", *MODELS)
    decoder.only("type", name)
    reader.raise_problems()
    return name


def _read_vocabularies(reader: ToolkitReader) -> Vocabularies:
    data = reader.options.section("data")
    symbols = data.section("special_symbols")
    special = {kind: symbols.word(f"{kind}_token", token) for kind, token in SPECIAL.items()}
    sizes = {"src": reader.source_words, "trg": reader.target_words}
    words = {side: _read_words(reader, data, side, size) for side, size in sizes.items()}
    reader.raise_problems()
    ids = {word: token_id for token_id, word in enumerate(words["trg"])}
    missing = [token for token in special.values() if token not in ids]
    reader.problems += [f"the target's words lack {token}" for token in missing]
    return Vocabularies(
        {SIDES[side]: listed for side, listed in words.items()},
        [*special.values()],
        special["unk"],
        pad=ids.get(special["pad"], 0),
        bos=ids.get(special["bos"], 0),
        eos=ids.get(special["eos"], 0),
        unk=ids.get(special["unk"], 0),
        start=ids.get(special["bos"], 0),
        languages=(_read_language(data, "src"), _read_language(data, "trg")),
    )


def _read_words(reader: ToolkitReader, data: Options, side: str, expected: int) -> list[str]:
    """Return the words of a side in the order of their ids."""
    options = data.section(side) if _is_section(data, side) else data
    options.only("level", "word", "bpe")
    for name in ("lowercase", "normalize"):
        options.only(name, False)
    options.section("tokenizer_cfg").only("pretokenizer", "none")
    return reader.read_words(reader.path.parent / f"{side}_vocab.txt", read_lines, expected)


def _read_language(data: Options, side: str) -> str:
    older = data.word(side, UNKNOWN_LANGUAGE) if not _is_section(data, side) else ""
    return older or data.section(side).word("lang", UNKNOWN_LANGUAGE)


def _is_section(data: Options, side: str) -> bool:
    return isinstance(data.values.get(side), dict)


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file, which may end with a line break."""
    words = read_text(path).split("\n")
    return words[:-1] if words[-1] == "" else words


def _longest_source(reader: ToolkitReader) -> Any:
    """Return the length above which sentences were left out of the training: of all sides in
    version 1.
    """
    data = reader.options.section("data")
    if _is_section(data, "src"):
        return data.section("src").values.get("max_length")
    return data.values.get("max_sent_length")


def _read_generation(reader: ToolkitReader) -> dict[str, Any]:
    """Return the beam width and the longest output that the model was tested with."""
    testing = reader.options.section("testing")
    generation: dict[str, Any] = {}
    if testing.integer("beam_size", 1) > 1:
        generation["num_beams"] = testing.integer("beam_size")
    longest = testing.values.get("max_output_length")
    if isinstance(longest, int) and longest > 0:
        generation["max_new_tokens"] = longest
    return generation


JOEYNMT = Toolkit(
    "JoeyNMT",
    (SOURCE, TARGET, OUTPUT),
    MODELS,
    _find_model,
    _read_vocabularies,
    longest_source=_longest_source,
    generation=_read_generation,
)
