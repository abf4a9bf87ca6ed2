"""The key file: names, limits and hashes of API keys, never a key itself.

A key has 256 random bits, so that a plain SHA-256 is enough: nobody can guess it. Slow hashes are
for passwords.

A limit is a field of `KeyEntry`, and is one of all replicas together. Requests of a second and
tokens of a minute are counted in `rates.py`, requests of a minute and characters of a month in
`quota.py`; `attendant keys` (`commands/administration.py`) sets them.
"""

import hashlib
import json
import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from serving.errors import ConfigError

_PREFIX = "att-"
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


class KeyEntry(BaseModel):
    """A key with its limits; None is no limit.

    sha256: of the key, in hexadecimal digits.
    requests_per_second, tokens_per_minute: rates, which each replica holds alone while it
        cannot ask the database of the state.
    requests_per_minute, characters_per_month: exact limits: requests are refused meanwhile.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=_NAME)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    requests_per_second: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    tokens_per_minute: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    requests_per_minute: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    characters_per_month: Annotated[int, Field(ge=0, lt=2**62)] | None = None


class _Content(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    keys: tuple[KeyEntry, ...] = ()


def generate_key() -> str:
    return _PREFIX + secrets.token_urlsafe(32)


def hash_key(key: str) -> str:
    return hashlib.sha256(key.encode(errors="backslashreplace")).hexdigest()


def new_key_entry(**fields: object) -> KeyEntry:
    """Return an entry. Raises ConfigError."""
    try:
        return KeyEntry.model_validate(fields)
    except ValidationError as error:
        raise ConfigError(
            "key", [_describe_problem(problem) for problem in error.errors()]
        ) from None


def read_keys(path: Path) -> tuple[KeyEntry, ...]:
    """Read all entries. Raises ConfigError with all problems."""
    try:
        content = _Content.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(path, [error.strerror or str(error)]) from None
    except ValidationError as error:
        raise ConfigError(
            path, [_describe_problem(problem) for problem in error.errors()]
        ) from None
    names = [entry.name for entry in content.keys]
    if len({*names}) < len(names):
        raise ConfigError(path, ["the keys' names must differ"])
    return content.keys


def write_keys(path: Path, entries: tuple[KeyEntry, ...]) -> None:
    """Replace the file atomically; a new file is readable by its owner only."""
    text = json.dumps(_Content(keys=entries).model_dump(exclude_none=True), indent=2)
    descriptor, written = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text + "\n")
        _copy_permissions(path, written)
        os.replace(written, path)
    except BaseException:
        os.unlink(written)
        raise


def _copy_permissions(path: Path, written: str) -> None:
    """Copy mode and owner of the file, because the server may run as another user."""
    with suppress(FileNotFoundError):
        status = path.stat()
        os.chmod(written, status.st_mode & 0o777)
        with suppress(PermissionError):
            os.chown(written, status.st_uid, status.st_gid)


def _describe_problem(problem: object) -> str:
    """Return the place and the problem, without the value: it may be a key."""
    assert isinstance(problem, dict)
    place = ".".join(map(str, problem["loc"])) or "the file"
    return f"{place}: {problem['msg']}"
