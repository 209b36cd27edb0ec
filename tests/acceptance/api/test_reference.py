"""The API reference at `/docs`: static files of this server, under a policy that permits no other host."""

from __future__ import annotations

import re
from pathlib import Path

from rune.server.app import STATIC_FILES
from tests.support.api_server import RunningServer, run


def test_reference_page_loads_only_files_of_this_server(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        page = await server.http.get("/docs", headers={"Authorization": ""})

        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        assert "script-src 'self';" in page.headers["content-security-policy"]
        named = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert set(named) == {"/static/rune.svg", *(path for path in STATIC_FILES if "docs." in path)} | {
            "/static/swagger-ui-bundle.js",
            "/static/swagger-ui.css",
        }
        for path in named:
            assert (await server.http.get(path, headers={"Authorization": ""})).status_code == 200, path
        assert not re.search(r"<script(?![^>]*src=)|\son\w+=|style=", page.text)

    run(tmp_path, work, key="s3cret")


def test_document_of_the_reference_requires_a_key(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        path = "/api/v1/openapi.json"

        assert (await server.http.get(path, headers={"Authorization": ""})).status_code == 401
        assert (await server.http.get(path)).json()["info"]["title"] == "Rune"

    run(tmp_path, work, key="s3cret")
