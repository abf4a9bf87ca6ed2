"""Makes the table of decoding options that users read, of the declarations of the options.

`python -m tests.docs.decoding_table` writes it where it stands.
"""

from dataclasses import MISSING
from pathlib import Path

from serving.commands.options import flag_of
from serving.requests.parameters import NUM_BEAMS, OPTIONS, Option

PLACE = Path(__file__).parents[2] / "docs" / "decoding.md"
START, END = "<!-- decoding options -->\n", "<!-- /decoding options -->"
HEAD = "| field | command line | values | without it | what it does |\n|---|---|---|---|---|\n"
# What holds in HTTP bodies without the field, where its declaration does not say.
DEFAULTS = {"temperature": "0, or 1", "num_beams": "no search"}


def table() -> str:
    return HEAD + "".join(map(_row, OPTIONS.values()))


def table_that_stands() -> str:
    return PLACE.read_text(encoding="utf-8").partition(START)[2].partition(END)[0]


def _row(option: Option) -> str:
    needs = {None: "", NUM_BEAMS: f" Needs `{NUM_BEAMS}`."}.get(
        option.needs, f" Needs {option.needs}."
    )
    only = " Only for `/translate`." if option.needs_source else ""
    cells = (
        f"`{option.name}`",
        f"`{flag_of(option)}`",
        str(option.values),
        DEFAULTS.get(option.name) or _default(option),
        option.help + needs + only,
    )
    return f"| {' | '.join(cells)} |\n"


def _default(option: Option) -> str:
    assert option.default is not MISSING, f"DEFAULTS says nothing of {option.name}"
    if option.default is None:
        return ""
    return (
        str(option.default).lower() if isinstance(option.default, bool) else f"{option.default:g}"
    )


if __name__ == "__main__":
    text = PLACE.read_text(encoding="utf-8")
    before, rest = text.split(START)
    PLACE.write_text(before + START + table() + END + rest.split(END)[1], encoding="utf-8")
