"""The API keys that a server accepts: those of its key file, and the one in the environment."""

import hmac
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path

from serving.access.key_file import KeyEntry, hash_key, read_keys
from serving.access.token_bucket import Clock, TokenBucket, requests_rate, tokens_rate
from serving.errors import ConfigError, RateExceeded

logger = logging.getLogger(__name__)

KEY_VARIABLE = "ATTENDANT_KEY"
_VARIABLE_NAME = "environment"  # the name of the key in KEY_VARIABLE
_CHECK_SECONDS = 1.0  # how often the file is checked for changes


class Key:
    """An entry with its buckets of this replica. Their levels are never below those of all replicas
    together (`rates.py`).

    requests, tokens: None without a limit.
    """

    def __init__(self, entry: KeyEntry, clock: Clock) -> None:
        self.entry = entry
        self.requests: TokenBucket | None = None
        self.tokens: TokenBucket | None = None
        if entry.requests_per_second is not None:
            self.requests = TokenBucket(requests_rate(entry.requests_per_second), clock)
        if entry.tokens_per_minute is not None:
            self.tokens = TokenBucket(tokens_rate(entry.tokens_per_minute), clock)

    @property
    def name(self) -> str:
        return self.entry.name

    def refusal(self) -> RateExceeded | None:
        """Return the error of one more request; None if its buckets have enough."""
        if self.tokens and (seconds := self.tokens.seconds_until(1)):
            rate = f"{self.entry.tokens_per_minute:g} tokens a minute"
            return RateExceeded(self.name, rate, seconds)
        if self.requests and (seconds := self.requests.seconds_until(1)):
            rate = f"{self.entry.requests_per_second:g} requests a second"
            return RateExceeded(self.name, rate, seconds)
        return None


class KeyRing:
    """The keys of a file, and the key in the environment."""

    def __init__(
        self, path: Path | None, environment: Mapping[str, str], clock: Clock = time.monotonic
    ) -> None:
        """Raises ConfigError if the file cannot be used."""
        self._path, self._clock = path, clock
        self._fixed = _entries_of_environment(environment)
        self._keys: tuple[Key, ...] = ()
        self._checked_at, self._version = clock(), self._file_version()
        self._reload()

    def find(self, key: str) -> Key | None:
        """Return the entry of a key with its buckets.

        All entries are compared, each in constant time, so that the time reveals nothing.
        """
        self._reload_if_changed()
        digest = hash_key(key)
        match = None
        for candidate in self._keys:
            if hmac.compare_digest(candidate.entry.sha256, digest):
                match = candidate
        return match

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
            self._reload()
        except ConfigError as error:
            logger.error("the keys stay as they were: %s", error)

    def _reload(self) -> None:
        """Read the file. Entries that stay the same keep their buckets. Raises ConfigError."""
        entries = read_keys(self._path) if self._path else ()
        if self._fixed and any(entry.name == _VARIABLE_NAME for entry in entries):
            problem = (
                f"no key may be named {_VARIABLE_NAME!r} while {KEY_VARIABLE} is set: its limits"
                " and its use are counted under that name"
            )
            raise ConfigError(self._path or KEY_VARIABLE, [problem])
        keys = {key.entry: key for key in self._keys}
        self._keys = tuple(
            keys.get(entry) or Key(entry, self._clock) for entry in (*entries, *self._fixed)
        )

    def _file_version(self) -> tuple[int, int, int] | None:
        """Return time, size and inode of the file, which change with its content."""
        try:
            status = os.stat(self._path) if self._path else None
        except OSError:
            return None
        return status and (status.st_mtime_ns, status.st_size, status.st_ino)


def _entries_of_environment(environment: Mapping[str, str]) -> tuple[KeyEntry, ...]:
    """Return the entry of the key in the environment, if there is one. Raises ConfigError.

    White space around the key goes, as in HTTP headers: a Kubernetes secret that was made with
    `echo` ends with a line break.
    """
    value = environment.get(KEY_VARIABLE)
    if not value:
        return ()
    if not (key := value.strip()):
        raise ConfigError(KEY_VARIABLE, ["holds only white space; set a key, or unset it"])
    return (KeyEntry(name=_VARIABLE_NAME, sha256=hash_key(key)),)


def open_key_ring(path: Path | None, environment: Mapping[str, str]) -> KeyRing | None:
    """Return the keys of a server; None if it needs no keys."""
    if path is None and not environment.get(KEY_VARIABLE):
        return None
    return KeyRing(path, environment)
