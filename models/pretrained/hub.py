"""Models of the Hugging Face hub by name, fetched by its own library: progress, resume and the
cache are its business. Only data is fetched, never code.
"""

from collections.abc import Sequence
from pathlib import Path

from models.pretrained.catalogue import PullError

PLAIN = ("*.json", "*.model", "*.spm", "*.txt", "*.jinja", "README.md")
WEIGHTS = "*.safetensors"
OLDER_WEIGHTS = "pytorch_model*.bin"


def fetch(name: str, file: str | None = None) -> Path:
    """The folder of the model `owner/name`, or one `file` of it, such as a GGUF file.

    Raises PullError.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        names = HfApi().list_repo_files(name)
        wanted = _wanted(name, names, file)
        folder = Path(snapshot_download(name, allow_patterns=wanted))
    except RepositoryNotFoundError:
        message = f"the hub has no model {name!r}, or it is not public"
        raise PullError([f"{message}: look at https://huggingface.co/models"]) from None
    except (OSError, ValueError) as error:  # connections, statuses, names, full disks
        first = str(error).strip().partition("\n")[0]
        raise PullError([f"{name} cannot be fetched from the hub: {first}"]) from None
    return folder if file is None else folder / file


def _wanted(name: str, names: Sequence[str], file: str | None) -> list[str]:
    """Of what lies at the top: the file, or all that a model of Transformers consists of."""
    if file is not None:
        if file not in names:
            raise PullError([f"{name} has no file {file!r}"])
        return [file]
    top = [each for each in names if "/" not in each]
    weights = [each for each in top if Path(each).match(WEIGHTS)]
    weights = weights or [each for each in top if Path(each).match(OLDER_WEIGHTS)]
    if not weights:
        ggufs = [each for each in names if each.endswith(".gguf")]
        hint = f"; name one with --file: {', '.join(ggufs[:10])}" if ggufs else ""
        raise PullError([f"{name} has no weights of a kind that can be read{hint}"])
    plain = [each for each in top if any(Path(each).match(pattern) for pattern in PLAIN)]
    return [*plain, *weights]
