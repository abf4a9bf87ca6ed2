"""Serves the page for people at `/`: files as they are, which ask the server's own protocols.

Nothing that the page loads or runs comes from elsewhere, and none of it stands within the HTML: a
browser refuses everything else, so no text of a user or a model can act on the page.
"""

from os import PathLike
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

_FOLDER = Path(__file__).parent / "page"
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cache-Control": "no-cache",  # kept, and asked for again by its ETag
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class _Page(StaticFiles):
    """Sends files with the headers of the page; Starlette gives them ETags and answers 304."""

    def file_response(self, full_path: str | PathLike[str], *args: Any, **options: Any) -> Response:
        response = super().file_response(full_path, *args, **options)
        response.headers.update(_HEADERS)
        return response


def add_page(app: FastAPI) -> None:
    page = _Page(directory=_FOLDER)

    @app.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        """Return the page; what belongs to it is beneath `/page`."""
        return await page.get_response("index.html", request.scope)

    app.mount("/page", page)
