"""Documents that are sent to one server and fetched from another, by DeepL's protocol."""

import re
from dataclasses import dataclass

import httpx

from tests.served import eventually

EN_FR = {"source_lang": "EN", "target_lang": "FR"}
_DONE_SECONDS = 240


@dataclass(frozen=True)
class SentDocument:
    """handle: the server's answer, with id and key. numbers: of its lines, in their order."""

    handle: dict[str, str]
    numbers: tuple[str, ...] = ()

    def is_begun(self, url: str) -> bool:
        return self._status(url) == "translating"

    def is_done(self, url: str) -> bool:
        """Wait until it is translated."""
        return eventually(lambda: self._status(url) == "done", _DONE_SECONDS)

    def fetch(self, url: str) -> str:
        """Return the result, which servers forget then."""
        assert self.is_done(url), self._status(url)
        answer = httpx.post(f"{self._path(url)}/result", data=self._key, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.text

    def fetch_numbers(self, url: str) -> tuple[str, ...]:
        """Return the numbers of the lines of the result: each once where none is lost."""
        return tuple(re.findall(r"\d+", self.fetch(url)))

    def _status(self, url: str) -> str:
        answer = httpx.post(self._path(url), data=self._key, timeout=60)
        return str(answer.json().get("status", answer.text))

    @property
    def _key(self) -> dict[str, str]:
        return {"document_key": self.handle["document_key"]}

    def _path(self, url: str) -> str:
        return f"{url}/v2/document/{self.handle['document_id']}"


def send_long_document(url: str, num_lines: int = 4000) -> SentDocument:
    """Send a document that takes seconds to translate."""
    numbers = tuple(map(str, range(num_lines)))
    text = "\n".join(f"A dog runs to house number {number}." for number in numbers)
    answer = httpx.post(
        f"{url}/v2/document", files={"file": ("a.txt", text)}, data=EN_FR, timeout=60
    )
    assert answer.status_code == 200, answer.text
    return SentDocument(answer.json(), numbers)
