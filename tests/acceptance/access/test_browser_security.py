"""Protection against requests from foreign pages, and the content security policy of the page."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect

from tests.support.api_clients import API, BOOTSTRAP
from tests.support.api_server import HELLO, RunningServer, run

FOREIGN = (
    "https://evil.example",
    "null",
    "http://localhost.evil.example",
    "http://127.0.0.1:1",
    "file://",
    "http://[",
    "",
)


@pytest.mark.parametrize("key", ["", BOOTSTRAP])
def test_request_from_foreign_origin_is_forbidden(key: str, tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        for origin in FOREIGN:
            headers = {"Origin": origin}
            for method, path in (
                ("GET", "/executions"),
                ("POST", "/workflows/hello/executions"),
                ("DELETE", "/workflows/hello"),
                ("PUT", "/workflows/hello"),
                ("PATCH", "/credentials/x"),
            ):
                answer = await server.http.request(method, f"{API}{path}", headers=headers)
                assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN"), (origin, method)
                assert "access-control-allow-origin" not in answer.headers
        bearer = {"Authorization": f"Bearer {key}"}
        with pytest.raises(Exception, match="403"):
            await connect(
                f"{server.url.replace('http', 'ws')}{API}/executions/x/events",
                origin="https://evil.example",  # type: ignore[arg-type]
                additional_headers=bearer,
            )
        assert (await server.http.get(f"{API}/workflows/hello")).status_code == 200
        assert (await server.http.get(f"{API}/executions")).json()["executions"] == []
        own = {"Origin": server.url}
        assert (await server.http.get(f"{API}/executions", headers=own)).status_code == 200

    run(tmp_path, work, key=key)


def test_foreign_host_header_is_rejected_without_key(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        for host in (
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example:80",
            "[::2]",
            "0.0.0.0",
            "",
            "evil@localhost",
            "evil:x@127.0.0.1:80",
            "localhost/evil",
            "localhost?evil",
            "localhost#evil",
            "localhost:80:80",
            "localhost:port",
            "localhost.",
            "localhost localhost",
            "::1",
        ):
            answer = await server.http.get(f"{API}/executions", headers={"Host": host})
            assert answer.status_code in (400, 403), host
        for host in ("localhost", "LOCALHOST:8080", "127.0.0.1", "[::1]:8080"):
            assert (await server.http.get(f"{API}/executions", headers={"Host": host})).status_code == 200

    run(tmp_path, work)


def test_page_has_strict_policy_and_no_inline_code(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        page = await server.http.get("/")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        for each in ("frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "script-src 'self'"):
            assert each in policy
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["x-frame-options"] == "DENY"
        assert page.headers["referrer-policy"] == "no-referrer"
        assert re.findall(r"<script(?![^>]*\bsrc=)[^>]*>", page.text) == []
        assert re.findall(r"\son\w+\s*=|javascript:|<style|\sstyle=", page.text) == []
        assert re.findall(r'(?:src|href)="(?!/)[^"]*"', page.text) == []
        assert "require-trusted-types-for 'script'" in policy

    run(tmp_path, work)


def test_two_keys_in_one_request_are_rejected(tmp_path: Path) -> None:
    """A proxy and the server would otherwise read different ones."""

    async def work(server: RunningServer) -> None:
        path = f"{server.url}{API}/executions"
        key = ("Authorization", f"Bearer {BOOTSTRAP}")
        async with httpx.AsyncClient(trust_env=False) as http:
            answer = await http.get(path, headers=[key, ("Authorization", "Bearer other")])
            assert (answer.status_code, answer.json()["code"]) == (400, "BAD_REQUEST")
            assert (await http.get(path, headers=[key])).status_code == 200

    run(tmp_path, work, key=BOOTSTRAP)
