"""The file of keys: names, limits and hashes, never a key; and the keys that a server accepts.

A key has 256 random bits, so that a plain SHA-256 is enough: nobody can guess it. Slow hashes are
for passwords.
"""

import hashlib
import hmac
import json
import logging
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from serving.errors import ConfigError, RateExceeded

_PREFIX = "att-"
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


class KeyEntry(BaseModel):
    """A key with its limits; None is no limit.

    sha256: of the key, in hexadecimal digits.
    requests_per_second, tokens_per_minute: limits of each replica.
    requests_per_minute, characters_per_month: limits of all replicas together.
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


def new_key() -> str:
    return _PREFIX + secrets.token_urlsafe(32)


def hash_of(key: str) -> str:
    return hashlib.sha256(key.encode(errors="backslashreplace")).hexdigest()


def new_entry(**fields: object) -> KeyEntry:
    """Return an entry. Raises ConfigError."""
    try:
        return KeyEntry.model_validate(fields)
    except ValidationError as error:
        raise ConfigError("key", [_described(each) for each in error.errors()]) from None


def read_keys(path: Path) -> tuple[KeyEntry, ...]:
    """Read all entries. Raises ConfigError with all problems."""
    try:
        content = _Content.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(path, [error.strerror or str(error)]) from None
    except ValidationError as error:
        raise ConfigError(path, [_described(each) for each in error.errors()]) from None
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


def _described(problem: object) -> str:
    """Return the place and the problem, without the value: it may be a key."""
    assert isinstance(problem, dict)
    place = ".".join(map(str, problem["loc"])) or "the file"
    return f"{place}: {problem['msg']}"


Clock = Callable[[], float]


class Bucket:
    """A token bucket: it fills at a steady rate up to its capacity.

    Amounts that are known only at the end, such as the tokens of an answer, are taken then. So the
    level may fall below zero; then nothing more is admitted until it has risen.
    """

    def __init__(self, per_second: float, capacity: float, clock: Clock = time.monotonic) -> None:
        self._per_second, self._capacity, self._clock = per_second, capacity, clock
        self._level, self._filled_at = capacity, clock()

    def seconds_until(self, amount: float) -> float:
        """Return the time until the level is at least `amount`; 0 if it already is."""
        self._fill()
        return max(0.0, (min(amount, self._capacity) - self._level) / self._per_second)

    def take(self, amount: float) -> None:
        self._fill()
        self._level -= amount

    def _fill(self) -> None:
        now = self._clock()
        risen = self._level + (now - self._filled_at) * self._per_second
        self._level, self._filled_at = min(self._capacity, risen), now


def requests_bucket(per_second: float, clock: Clock = time.monotonic) -> Bucket:
    """Return a bucket that admits the requests of a second at once, but at least one."""
    return Bucket(per_second, max(1.0, per_second), clock)


def tokens_bucket(per_minute: float, clock: Clock = time.monotonic) -> Bucket:
    """Return a bucket that admits the tokens of a minute at once."""
    return Bucket(per_minute / 60, per_minute, clock)


logger = logging.getLogger(__name__)

KEY_VARIABLE = "ATTENDANT_KEY"
_VARIABLE_NAME = "environment"  # the name of the key in KEY_VARIABLE
_CHECK_SECONDS = 1.0  # how often the file is checked for changes


class Key:
    """An entry with its buckets."""

    def __init__(self, entry: KeyEntry, clock: Clock) -> None:
        self.entry = entry
        self._requests: Bucket | None = None
        self._tokens: Bucket | None = None
        if entry.requests_per_second is not None:
            self._requests = requests_bucket(entry.requests_per_second, clock)
        if entry.tokens_per_minute is not None:
            self._tokens = tokens_bucket(entry.tokens_per_minute, clock)

    @property
    def name(self) -> str:
        return self.entry.name

    def admit(self) -> None:
        """Count one more request. Raises RateExceeded."""
        if self._tokens and (seconds := self._tokens.seconds_until(1)):
            rate = f"{self.entry.tokens_per_minute:g} tokens a minute"
            raise RateExceeded(self.name, rate, seconds)
        if self._requests:
            if seconds := self._requests.seconds_until(1):
                rate = f"{self.entry.requests_per_second:g} requests a second"
                raise RateExceeded(self.name, rate, seconds)
            self._requests.take(1)

    def charge(self, num_tokens: int) -> None:
        """Count the tokens of a request that has ended."""
        if self._tokens:
            self._tokens.take(num_tokens)


class KeyRing:
    """The keys of a file, and the key in the environment."""

    def __init__(
        self, path: Path | None, environment: Mapping[str, str], clock: Clock = time.monotonic
    ) -> None:
        """Raises ConfigError if the file cannot be used."""
        self._path, self._clock = path, clock
        key = environment.get(KEY_VARIABLE)
        self._fixed = (KeyEntry(name=_VARIABLE_NAME, sha256=hash_of(key)),) if key else ()
        self._keys: tuple[Key, ...] = ()
        self._checked_at, self._version = clock(), self._file_version()
        self._replace(read_keys(path) if path else ())

    def find(self, key: str) -> Key | None:
        """Return the entry of a key with its buckets.

        All entries are compared, each in constant time, so that the time reveals nothing.
        """
        self._reload_if_changed()
        digest = hash_of(key)
        found = None
        for known in self._keys:
            if hmac.compare_digest(known.entry.sha256, digest):
                found = known
        return found

    def entry(self, name: str) -> KeyEntry | None:
        """Return the entry of a name; None if its key was revoked."""
        return next((key.entry for key in self._keys if key.name == name), None)

    def _reload_if_changed(self) -> None:
        now = self._clock()
        if self._path is None or now - self._checked_at < _CHECK_SECONDS:
            return
        self._checked_at = now
        version = self._file_version()
        if version == self._version:
            return
        self._version = version
        try:
            self._replace(read_keys(self._path))
        except ConfigError as error:
            logger.error("the keys stay as they were: %s", error)

    def _replace(self, entries: tuple[KeyEntry, ...]) -> None:
        """Replace the keys. Entries that stay the same keep their buckets."""
        kept = {key.entry: key for key in self._keys}
        self._keys = tuple(
            kept.get(entry) or Key(entry, self._clock) for entry in (*entries, *self._fixed)
        )

    def _file_version(self) -> tuple[int, int, int] | None:
        """Return time, size and inode of the file, which change with its content."""
        try:
            status = os.stat(self._path) if self._path else None
        except OSError:
            return None
        return status and (status.st_mtime_ns, status.st_size, status.st_ino)


def key_ring(path: Path | None, environment: Mapping[str, str]) -> KeyRing | None:
    """Return the keys of a server; None if it needs no keys."""
    if path is None and not environment.get(KEY_VARIABLE):
        return None
    return KeyRing(path, environment)
