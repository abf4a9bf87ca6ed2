"""Read the text of a .pdf. Its translation is plain text: a PDF keeps no paragraphs to write in."""

import json
import subprocess
import sys
from pathlib import Path

from serving.documents.document import Document
from serving.documents.encoding import TextFile
from serving.documents.formats.plain_text import plain_document
from serving.errors import RequestError

_PROGRAM = Path(__file__).with_name("pdf_reader.py")


def read_pdf(path: Path, language: str | None = None) -> Document:
    """Read the paragraphs of a PDF. Raises RequestError, also for one without text."""
    process = subprocess.run(
        [sys.executable, "-P", str(_PROGRAM), str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        check=False,
    )
    killed = {"error": "takes too much time or memory to read"}
    answer = json.loads(process.stdout) if process.returncode == 0 else killed
    if "error" in answer:
        raise RequestError("file", path.name, answer["error"])
    return plain_document(TextFile(answer["text"], "utf-8"), language)
