"""The built web interface: its page at every path of its own, compressed files that are cached for ever, and compressed
JSON."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import httpx
import pytest

from rune.server.app import UserInterface, make_app, read_interface
from tests.support.api_server import API, ITEMS, RunningServer, run

PAGE = b"<!doctype html><title>Rune</title>"
SCRIPT = b"console.log('rune')" * 50
BROWSER = {"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}


@pytest.fixture
def built(tmp_path: Path) -> UserInterface:
    """A built interface of one page, a compressed script and a picture."""
    folder = tmp_path / "assets"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_bytes(PAGE)
    (folder / "assets" / "index-a1b2.js").write_bytes(SCRIPT)
    (folder / "assets" / "index-a1b2.js.gz").write_bytes(gzip.compress(SCRIPT))
    (folder / "assets" / "rune-c3d4.svg").write_bytes(b"<svg/>")
    found = read_interface(folder)
    assert found is not None
    return found


def with_interface(tmp_path: Path, built: UserInterface, work: Any) -> None:
    """Run a function with a client of an application that has the interface."""

    async def go(server: RunningServer) -> None:
        transport = httpx.ASGITransport(app=make_app(server.master, interface=built))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await work(client)

    run(tmp_path / "home", go)


def test_interface_page_is_sent_for_its_paths_only(tmp_path: Path, built: UserInterface) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        for path in ("/", "/executions/x1?view=graph", "/waiting", "/workflows/a/versions/1..2"):
            page = await client.get(path, headers=BROWSER)
            assert (page.status_code, page.content) == (200, PAGE), path
            assert page.headers["cache-control"] == "no-cache"
            policy = page.headers["content-security-policy"]
            assert "font-src 'self'" in policy
            assert "require-trusted-types-for 'script'" in policy
            assert "unsafe" not in policy
        for path in ("/api/v1/unknown", "/api", "/API/v1", "/assets/gone.js", "/hooks", "/static/gone.js"):
            assert (await client.get(path, headers=BROWSER)).status_code == 404, path
        assert (await client.get("/executions/x1")).status_code == 404  # a program, not a browser
        assert (await client.post("/executions/x1", headers=BROWSER)).status_code == 404
        assert (await client.get("/healthz", headers=BROWSER)).json() == {"status": "ok"}
        assert (await client.get("/docs", headers=BROWSER)).text != PAGE.decode()

    with_interface(tmp_path, built, work)


def test_asset_is_immutable_and_compressed_if_accepted(tmp_path: Path, built: UserInterface) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        packed = await client.get("/assets/index-a1b2.js", headers={"Accept-Encoding": "br, gzip"})
        assert packed.headers["content-encoding"] == "gzip"
        assert packed.headers["vary"] == "Accept-Encoding"
        assert packed.headers["content-type"].startswith("text/javascript")
        assert packed.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert packed.headers["x-content-type-options"] == "nosniff"
        assert packed.content == SCRIPT
        assert int(packed.headers["content-length"]) < len(SCRIPT)
        for refused in ("identity", "gzip;q=0", ""):
            plain = await client.get("/assets/index-a1b2.js", headers={"Accept-Encoding": refused})
            assert "content-encoding" not in plain.headers
            assert plain.content == SCRIPT
        picture = await client.get("/assets/rune-c3d4.svg")
        assert picture.headers["content-type"] == "image/svg+xml"
        for outside in ("../index.html", "index-a1b2.js.gz", "..%2f..%2fapp.py", ""):
            assert (await client.get(f"/assets/{outside}")).status_code == 404, outside

    with_interface(tmp_path, built, work)


def test_version_names_build_of_interface(tmp_path: Path, built: UserInterface) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        assert (await client.get("/version")).json()["build"] == built.build
        assert len(built.build) == 12

    with_interface(tmp_path, built, work)


def test_folder_without_page_has_no_interface(tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    assert read_interface(tmp_path) is None
    assert read_interface(tmp_path / "nothing") is None


def test_large_json_is_compressed_and_streams_are_not(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(ITEMS)
        id = await server.ended("items", {"items": list(range(3_000))})
        path = f"{API}/executions/{id}/nodes?limit=50"
        packed = await server.http.get(path, headers={"Accept-Encoding": "gzip"})
        plain = await server.http.get(path, headers={"Accept-Encoding": "identity"})
        assert packed.headers["content-encoding"] == "gzip"
        assert packed.headers["vary"] == plain.headers["vary"] == "accept-encoding"
        assert "content-encoding" not in plain.headers
        assert packed.json() == plain.json()
        assert int(packed.headers["content-length"]) * 3 < int(plain.headers["content-length"])
        large = await server.http.get(f"{API}/executions/{id}/nodes?limit=1000")
        assert large.headers["content-encoding"] == "gzip"
        assert len(large.json()["nodes"]) == 1000
        small = await server.http.get(f"{API}/executions/{id}", headers={"Accept-Encoding": "gzip"})
        assert "content-encoding" not in small.headers
        async with server.http.stream("GET", f"{API}/executions/{id}/events") as stream:
            assert "content-encoding" not in stream.headers

    run(tmp_path, work)
