"""A server that tells what was sent with a credential."""

from __future__ import annotations

from aiohttp import web

TOKEN = "kanari-9f3d0c7-e51b"


class Heard:
    """A server that remembers, and repeats what it heard."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], str]] = []

    async def __call__(self, request: web.Request) -> web.Response:
        headers = {name.lower(): text for name, text in request.headers.items()}
        self.requests.append((headers, request.raw_path))
        if request.path == "/token":
            return web.json_response({"access_token": f"fetched-{TOKEN}", "token_type": "Bearer"})
        return web.json_response({"headers": headers, "path": request.raw_path})
