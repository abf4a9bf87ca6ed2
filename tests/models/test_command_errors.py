"""What the user can mend is a message; a bug is a traceback that asks for a report."""

import pytest

from models.command_errors import BUG, reported_errors
from models.errors import InputError


@pytest.mark.parametrize("error", [InputError("no text"), OSError("no text")])
def test_a_wrong_input_is_a_message(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"), reported_errors("training"):
        raise error
    assert capsys.readouterr().err == "no text\n"


def test_a_bug_asks_for_a_report() -> None:
    with pytest.raises(ValueError, match="shapes") as caught, reported_errors("training"):
        raise ValueError("shapes do not match")
    assert caught.value.__notes__ == [BUG]
