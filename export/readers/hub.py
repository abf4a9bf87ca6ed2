"""Fetches models of the Hugging Face hub by name with its own library: progress, resume and the
cache are its business. Only data is fetched, never code.
"""

from pathlib import Path

from export.readers.catalogue import PullError

PLAIN = ("*.json", "*.model", "*.spm", "*.txt", "*.jinja", "README.md")
WEIGHTS, OLDER_WEIGHTS = "*.safetensors", "pytorch_model*.bin"
# of Sentence Transformers' modules, and chat templates for tools
PARTS = ("[0-9]_*/config.json", "[0-9]_*/model.safetensors", "[0-9]_*/pytorch_model.bin")
TEMPLATES = "additional_chat_templates/*.jinja"
NEEDLESS = ("*/*", "consolidated*")  # other frameworks' copies


def fetch(name: str, file: str | None = None) -> Path:
    """Fetch the folder of the model `owner/name`, or one `file` of it, such as a GGUF file.

    Raises PullError.
    """
    if file is not None:
        path = _snapshot(name, file) / file
        if not path.is_file():
            raise PullError([f"{name} has no file {file!r}"])
        return path
    _snapshot(name, *PARTS, TEMPLATES)
    folder = _snapshot(name, *PLAIN, WEIGHTS, ignored=NEEDLESS)
    if any(folder.glob(WEIGHTS)):
        return folder
    folder = _snapshot(name, *PLAIN, OLDER_WEIGHTS, ignored=NEEDLESS)
    if not any(folder.glob(OLDER_WEIGHTS)):
        message = f"{name} has neither {WEIGHTS} nor {OLDER_WEIGHTS}"
        raise PullError([f"{message}; of its GGUF files, name one with --file"])
    return folder


def _snapshot(name: str, *patterns: str, ignored: tuple[str, ...] = ()) -> Path:
    """Fetch the files of these patterns; gives their folder."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        folder = snapshot_download(
            name, allow_patterns=list(patterns), ignore_patterns=list(ignored)
        )
    except RepositoryNotFoundError:
        message = f"the hub has no model {name!r}, or it is not public"
        raise PullError([f"{message}: look at https://huggingface.co/models"]) from None
    except Exception as error:  # its HTTP library's too, which changes from version to version
        first = str(error).strip().partition("\n")[0]
        raise PullError([f"{name} cannot be fetched from the hub: {first}"]) from None
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)  # it is not there if no file fits
    return path
