"""Runs the `attendant` command.

Commands of packages that serving does not know are found through the entry points of the group
`attendant.commands`. Heavy imports wait until a command runs, so that `--help` is quick.
"""

from importlib.metadata import entry_points
from typing import Any

import click

from serving.commands.administration import keys, models
from serving.commands.align import align
from serving.commands.encoders import classify, embed
from serving.commands.generate import generate
from serving.commands.options import fail
from serving.commands.score import score
from serving.commands.serve import serve
from serving.commands.translate import translate
from serving.errors import AttendantError, ProblemsError

_EXTRAS = {
    "torch": "train",
    "sacrebleu": "train",
    "matplotlib": "plots",
    "onnxruntime": "cpu] or attendant[gpu",
}


class Commands(click.Group):
    """Commands of this module and of the entry points; errors become one clear line each."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        found = [entry.name for entry in entry_points(group="attendant.commands")]
        return sorted({*super().list_commands(ctx), *found})

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        own = super().get_command(ctx, name)
        if own is not None:
            return own
        for entry in entry_points(group="attendant.commands", name=name):
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
        except (AttendantError, OSError) as error:
            fail(str(error))
        except ModuleNotFoundError as error:
            fail(_missing(error))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="attendant")
def main() -> None:
    """Serve trained attention models over HTTP, or use them right here.

    \b
    A model goes from checkpoint to server in two steps:
      attendant export models/checkpoints/transformer-en-fr -o build/bundles/en-fr --precision int8
      attendant serve build/bundles/en-fr
    """


for command in (serve, keys, models, translate, generate, embed, classify, score, align):
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
