"""Runs the `attendant` command.

Commands of packages that serving does not know are found through entry points: the groups
`attendant.commands` and, for `attendant lab`, `attendant.lab`. Heavy imports wait until a command
runs.
"""

from importlib.metadata import entry_points
from typing import Any

import click

from serving.commands.administration import keys, models
from serving.commands.align import align
from serving.commands.caption import caption
from serving.commands.encoders import classify, embed
from serving.commands.generate import generate
from serving.commands.mcp_server import mcp
from serving.commands.memory import memory
from serving.commands.options import fail
from serving.commands.score import score
from serving.commands.serve import serve
from serving.commands.translate import translate
from serving.errors import AttendantError, ProblemsError

_EXTRAS = {
    "torch": "train",
    "sacrebleu": "train",
    "matplotlib": "plots",
    "mcp": "mcp",
    "onnxruntime": "cpu] or attendant[gpu",
}


# The order of `attendant --help`.
_SECTIONS = {
    "Use models": (
        "serve",
        "translate",
        "generate",
        "caption",
        "embed",
        "classify",
        "score",
        "align",
        "mcp",
    ),
    "Get models": ("pull", "export", "train", "tune"),
    "Run a server": ("keys", "models", "memory", "deploy"),
    "Measure": ("evaluate", "bench", "bench-compare", "cost", "loadtest", "loadtest-report"),
}


class Commands(click.Group):
    """Commands of this module and of entry points; errors become one clear line each.

    entries: the group of the entry points.
    """

    def __init__(self, *args: Any, entries: str, **options: Any) -> None:
        super().__init__(*args, **options)
        self._entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        found = [entry.name for entry in entry_points(group=self._entries)]
        return sorted({*super().list_commands(ctx), *found})

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a sentence for each command, by what they are for; click would cut it."""
        left = self.list_commands(ctx)
        for title, names in _SECTIONS.items():
            self._write_section(ctx, formatter, title, [name for name in names if name in left])
        placed = {name for names in _SECTIONS.values() for name in names}
        others = [name for name in left if name not in placed]
        self._write_section(
            ctx, formatter, "More" if len(others) < len(left) else "Commands", others
        )

    def _write_section(
        self, ctx: click.Context, formatter: click.HelpFormatter, title: str, names: list[str]
    ) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in names]
        rows = [(name, each.get_short_help_str(1_000)) for name, each in commands if each]
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        own = super().get_command(ctx, name)
        if own is not None:
            return own
        for entry in entry_points(group=self._entries, name=name):
            try:
                command: click.Command = entry.load()
            except ModuleNotFoundError as error:
                return _unavailable(name, error)
            return command
        return None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ProblemsError as error:
            fail("\n".join(f"{error.path}: {problem}" for problem in error.problems))
        except OSError as error:
            fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        except AttendantError as error:
            fail(str(error))
        except ModuleNotFoundError as error:
            fail(_missing(error))


_HELP = {"help_option_names": ["-h", "--help"]}


@click.group(cls=Commands, entries="attendant.commands", context_settings=_HELP)
@click.version_option(package_name="attendant")
def main() -> None:
    """Serve trained attention models over HTTP, or use them right here.

    \b
    A model goes from checkpoint to server in two steps:
      attendant export models/checkpoints/transformer-en-fr -o build/bundles/en-fr --precision int8
      attendant serve build/bundles/en-fr
    """


@click.group(cls=Commands, entries="attendant.lab", context_settings=_HELP)
def lab() -> None:
    """Train, compare and prepare the models that the project ships: commands of its developers."""


for command in (
    *(serve, keys, models, memory),
    *(translate, generate, caption, embed, classify, score, align, mcp, lab),
):
    main.add_command(command)


def _unavailable(name: str, error: ModuleNotFoundError) -> click.Command:
    @click.command(name, short_help="(not installed)")
    def unavailable() -> None:
        fail(_missing(error))

    return unavailable


def _missing(error: ModuleNotFoundError) -> str:
    package = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(package)
    if extra is None:
        raise error
    return f"this needs {package}, which is not installed: pip install 'attendant[{extra}]'"


if __name__ == "__main__":
    main()
