"""Knows the keys of a server and what each may still ask for; it notices that their file changes.

Rates here are those of one replica: replicas do not tell each other what a key has asked for.
`quota` counts for all of them.
"""

import hmac
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serving.access.account import Account
from serving.access.key_file import KeyEntry, hash_of, read_keys
from serving.access.rates import Bucket, Clock, requests_bucket, tokens_bucket
from serving.errors import ConfigError, RateExceeded

logger = logging.getLogger(__name__)

KEY_VARIABLE = "ATTENDANT_KEY"
_NAME_OF_VARIABLE = "environment"
_LOOKS_EVERY_SECONDS = 1.0


class Key:
    """Holds an entry and its buckets."""

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
    """Holds the keys of a file, and one that an environment variable names."""

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
