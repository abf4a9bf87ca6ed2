"""A small sound model of every format that is read: `write("fairseq", folder)` gives its source."""

from collections.abc import Callable
from pathlib import Path

from tests.export.readers.ctranslate2 import packages
from tests.export.readers.gguf.files import write_gguf
from tests.export.readers.hugging_face import language_models, translators
from tests.export.readers.marian import files as marian
from tests.export.readers.toolkits import test_fairseq, test_opennmt
from tests.tiny import tiny_checkpoint


def own(folder: Path) -> Path:
    tiny_checkpoint("luong", folder)
    return folder


def language_model(folder: Path) -> Path:
    return language_models.save(language_models.random_model("llama"), folder)


def pickled_language_model(folder: Path) -> Path:
    """With pytorch_model.bin, as before safetensors."""
    import torch

    model = language_models.random_model("gpt2")
    language_models.save(model, folder)
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    return folder


def translator(folder: Path) -> Path:
    translators.save(translators.FAMILIES["nllb"], folder)
    return folder


def gguf(folder: Path) -> Path:
    return write_gguf(language_models.random_model("smollm2"), folder / "model.gguf")


def bergamot(folder: Path) -> Path:
    marian.bergamot_folder(folder)
    return folder


def opennmt(folder: Path) -> Path:
    return test_opennmt.saved(folder, {"encoder_type": "brnn"})[1]


def opennmt_transformer(folder: Path) -> Path:
    return test_opennmt.saved(folder, test_opennmt.TRANSFORMER)[1]


def fairseq(folder: Path) -> Path:
    test_fairseq.saved(folder, {})
    return folder


def argos_package(folder: Path) -> Path:
    return packages.write_package(folder)


SAMPLES: dict[str, Callable[[Path], Path]] = {
    "own": own,
    "language model": language_model,
    "pickled language model": pickled_language_model,
    "translator": translator,
    "gguf": gguf,
    "bergamot": bergamot,
    "opennmt": opennmt,
    "opennmt transformer": opennmt_transformer,
    "fairseq": fairseq,
    "argos package": argos_package,
}


def write(name: str, folder: Path) -> Path:
    """The file or folder that `read_model` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    return SAMPLES[name](folder)
