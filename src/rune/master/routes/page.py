"""The status page: four files, no build step, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files

from fastapi import APIRouter, Request
from starlette.responses import Response

FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/static/rune.js": ("rune.js", "text/javascript; charset=utf-8"),
    "/static/rune.svg": ("rune.svg", "image/svg+xml"),
    "/static/rune.css": ("rune.css", "text/css; charset=utf-8"),
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def add_page(router: APIRouter) -> None:
    """Put the page on a router."""
    for path, (name, kind) in FILES.items():
        router.add_api_route(path, _file(name, kind), methods=["GET"], include_in_schema=False)


def _file(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    data = (files("rune.master") / "static" / name).read_bytes()

    async def endpoint(request: Request) -> Response:
        return Response(data, headers=HEADERS, media_type=kind)

    endpoint.need = "page"  # type: ignore[attr-defined]
    return endpoint
