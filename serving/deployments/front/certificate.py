"""Brings the server's certificate and its key to HAProxy, in the one file that it reads."""

import os
import ssl
from pathlib import Path

from serving.errors import ConfigError
from serving.server_config import Tls

_FILE = "certificate.pem"
_MISMATCH = "KEY_VALUES_MISMATCH"


class Certificate:
    """Holds the files that a user renews, and HAProxy's own in a run's folder."""

    def __init__(self, tls: Tls, folder: Path) -> None:
        self.path = certificate_in(folder)
        self._tls = tls
        self._seen = self._look()

    def write(self) -> None:
        """Put what was read last where HAProxy looks as it starts. Raises ConfigError."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode=0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(read_certificate(self._tls))

    def has_changed(self) -> bool:
        """Tell whether a file is another than when this was asked last."""
        before, self._seen = self._seen, self._look()
        return self._seen != before

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_state_of(path) for path in (self._tls.certificate, self._tls.key)]


def certificate_in(folder: Path) -> Path:
    return folder / _FILE


def read_certificate(tls: Tls) -> str:
    """Return the certificate, those that vouch for it, and the key, as PEM without empty lines.

    Raises ConfigError for files that cannot be read, or do not belong together.
    """
    texts = [_read(path) for path in (tls.certificate, tls.key)]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls.certificate, tls.key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == _MISMATCH:
            raise ConfigError(tls.key, [f"is not the key of {tls.certificate}"]) from None
        problem = f"not a certificate in PEM whose key {tls.key} is ({error.reason})"
        raise ConfigError(tls.certificate, [problem]) from None
    lines = (line for text in texts for line in text.splitlines() if line.strip())
    return "\n".join(lines) + "\n"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError as error:
        raise ConfigError(path, [error.strerror or str(error)]) from None
    except UnicodeDecodeError:
        raise ConfigError(path, ["not PEM"]) from None


def _no_password() -> str:
    """Give an encrypted key no password: nobody is there to type one."""
    return ""


def _state_of(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
