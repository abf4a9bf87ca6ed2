"""Reads and writes the file of keys: names, rates and hashes, never a key itself.

A key is 256 random bits, so a plain SHA-256 of it cannot be guessed back; slow hashes are for
passwords, which people choose.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from serving.access.account import Account
from serving.errors import ConfigError, RateExceeded

_PREFIX = "att-"
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


class KeyEntry(BaseModel):
    """Describes one key.

    sha256: of the key, in hexadecimal digits.
    requests_per_second, tokens_per_minute: the most it may ask for of each replica; None is no
        limit.
    requests_per_minute, characters_per_month: the same of all replicas together.
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
    """Make an entry. Raises ConfigError."""
    try:
        return KeyEntry.model_validate(fields)
    except ValidationError as error:
        raise ConfigError("key", [_described(each) for each in error.errors()]) from None


def read_keys(path: Path) -> tuple[KeyEntry, ...]:
    """Read all entries. Raises ConfigError with everything that is wrong."""
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
    """Put a new file in the old one's place, in one step; only its owner reads it."""
    text = json.dumps(_Content(keys=entries).model_dump(exclude_none=True), indent=2)
    descriptor, written = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text + "\n")
        _keep_readers(path, written)
        os.replace(written, path)
    except BaseException:
        os.unlink(written)
        raise


def _keep_readers(path: Path, written: str) -> None:
    """Keep mode and owner: a server may run as another user, whom the file was opened to."""
    with suppress(FileNotFoundError):
        status = path.stat()
        os.chmod(written, status.st_mode & 0o777)
        with suppress(PermissionError):
            os.chown(written, status.st_uid, status.st_gid)


def _described(problem: object) -> str:
    """Return where and what, without the value: it may be a key in the wrong place."""
    assert isinstance(problem, dict)
    place = ".".join(map(str, problem["loc"])) or "the file"
    return f"{place}: {problem['msg']}"


Clock = Callable[[], float]
_SECONDS_OF_BURST = 1.0


class Bucket:
    """Fills at a steady rate up to its capacity; each use takes from it.

    What is only known afterwards, as how many tokens an answer has, is taken then: the level may
    fall below zero, and nothing passes until it has risen again.
    """

    def __init__(self, per_second: float, capacity: float, clock: Clock = time.monotonic) -> None:
        self._per_second, self._capacity, self._clock = per_second, capacity, clock
        self._level, self._filled_at = capacity, clock()

    def seconds_until(self, amount: float) -> float:
        """Return how long it takes until it holds so much; 0 where it does."""
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
    """Let as many requests come at once as a second allows, one at least."""
    return Bucket(per_second, max(1.0, per_second * _SECONDS_OF_BURST), clock)


def tokens_bucket(per_minute: float, clock: Clock = time.monotonic) -> Bucket:
    """Let the tokens of a minute come at once."""
    return Bucket(per_minute / 60, per_minute, clock)


logger = logging.getLogger(__name__)

KEY_VARIABLE = "ATTENDANT_KEY"
_NAME_OF_VARIABLE = "environment"
_LOOKS_EVERY_SECONDS = 1.0


class Key:
    """An entry and its buckets."""

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

    def charge(self, account: Account) -> None:
        """Count the tokens of a request that has ended, however it did."""
        if self._tokens:
            self._tokens.take(account.num_tokens)


@dataclass(frozen=True)
class _Seen:
    """Tells one state of a file from another."""

    changed_at: int
    size: int
    inode: int


class KeyRing:
    """The keys of a file, and one that an environment variable names."""

    def __init__(
        self, path: Path | None, environment: Mapping[str, str], clock: Clock = time.monotonic
    ) -> None:
        """Raises ConfigError for a file that cannot be used."""
        self._path, self._clock = path, clock
        self._own = _entries_of(environment)
        self._keys: tuple[Key, ...] = ()
        self._looked_at = clock()
        self._seen = self._look()
        self._take_over(read_keys(path) if path else ())

    def find(self, key: str) -> Key | None:
        """Return what is known of a key. All entries are compared, each in constant time, so that
        the time tells nothing.
        """
        self._reload_if_changed()
        digest = hash_of(key)
        found = None
        for known in self._keys:
            if hmac.compare_digest(known.entry.sha256, digest):
                found = known
        return found

    def entry(self, name: str) -> KeyEntry | None:
        """Return the entry of that name; None once its key was revoked."""
        return next((key.entry for key in self._keys if key.name == name), None)

    def _reload_if_changed(self) -> None:
        now = self._clock()
        if self._path is None or now - self._looked_at < _LOOKS_EVERY_SECONDS:
            return
        self._looked_at = now
        seen = self._look()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._take_over(read_keys(self._path))
        except ConfigError as error:
            logger.error("the keys stay as they were: %s", error)

    def _take_over(self, entries: tuple[KeyEntry, ...]) -> None:
        """Entries that stay the same keep their buckets."""
        kept = {key.entry: key for key in self._keys}
        every = (*entries, *self._own)
        self._keys = tuple(kept.get(entry) or Key(entry, self._clock) for entry in every)

    def _look(self) -> _Seen | None:
        try:
            status = os.stat(self._path) if self._path else None
        except OSError:
            return None
        return status and _Seen(status.st_mtime_ns, status.st_size, status.st_ino)


def _entries_of(environment: Mapping[str, str]) -> tuple[KeyEntry, ...]:
    key = environment.get(KEY_VARIABLE)
    return (KeyEntry(name=_NAME_OF_VARIABLE, sha256=hash_of(key)),) if key else ()


def key_ring(path: Path | None, environment: Mapping[str, str]) -> KeyRing | None:
    """Make the ring of a server; None where it asks for no keys."""
    if path is None and not environment.get(KEY_VARIABLE):
        return None
    return KeyRing(path, environment)
