"""`http` where the network is not kind: redirects, certificates, names that change, servers that talk nonsense."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web

from rune.core.execution.outcome import Outcome
from rune.nodes.resources import Resources
from tests.unit.nodes.io.calling import Raw, call, listening, local_world, serving
from tests.unit.nodes.running import error, output


@asynccontextmanager
async def a_world(**options: Any) -> AsyncIterator[Resources]:
    world = local_world(**options)
    try:
        yield world
    finally:
        await world.close()


class Names:
    """A resolver that answers by a list, one answer at a time, and notes what it was asked."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


class Site:
    """A server that redirects as told and keeps what it was sent."""

    def __init__(self, *moves: tuple[int, str]) -> None:
        self._moves = list(moves)
        self.port = 0
        self.seen: list[tuple[str, str, dict[str, str], str]] = []

    async def answer(self, request: web.Request) -> web.Response:
        headers = {name.lower(): text for name, text in request.headers.items()}
        self.seen.append((request.method, request.raw_path, headers, await request.text()))
        if not self._moves:
            return web.Response(text="here")
        status, location = self._moves.pop(0)
        return web.Response(status=status, headers={"Location": location.replace("PORT", str(self.port))})

    def ask(self, resolve: Names | None = None, **parameters: Any) -> Outcome:
        async def scenario() -> Outcome:
            async with a_world(resolve=resolve) as world, serving(self.answer) as self.port:
                return await call("http", {"url": f"http://127.0.0.1:{self.port}/", **parameters}, world)

        return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("status", "method", "after", "body"),
    [
        (301, "POST", "GET", ""),
        (302, "POST", "GET", ""),
        (303, "PUT", "GET", ""),
        (307, "POST", "POST", '{"a":1}'),
        (308, "PUT", "PUT", '{"a":1}'),
        (302, "GET", "GET", '{"a":1}'),
    ],
)
def test_redirects_are_followed(status: int, method: str, after: str, body: str) -> None:
    site = Site((status, "/there?x=1"))

    assert output(site.ask(method=method, body={"a": 1}))["body"] == "here"
    assert (site.seen[1][0], site.seen[1][1], site.seen[1][3]) == (after, "/there?x=1", body)
    assert ("content-type" in site.seen[1][2]) is bool(body)


def test_a_redirect_may_be_the_answer() -> None:
    site = Site((302, "/there"))

    assert output(site.ask(follow_redirects=False))["status"] == 302
    assert len(site.seen) == 1


def test_five_redirects_are_enough() -> None:
    assert output(Site(*[(302, "/")] * 5).ask())["status"] == 200

    site = Site(*[(302, "/")] * 6)
    assert error(site.ask()).code == "HTTP_REDIRECT"
    assert len(site.seen) == 6


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data/",
        "//10.0.0.1/",
        "http://[::1]:PORT/",
        "http://localhost:PORT/",
        "http://127.1:PORT/",
        "http://u:p@127.0.0.1:PORT/",
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "http://inside.example:PORT/",
        "http://",
        "\\\\127.0.0.2\\",
    ],
)
def test_a_redirect_leads_nowhere_that_is_blocked(location: str) -> None:
    site = Site((302, location))

    assert error(site.ask(resolve=Names(["10.0.0.1"]))).code == "HTTP_BLOCKED"
    assert len(site.seen) == 1


SECRET = {
    "Authorization": "Bearer s3",
    "Cookie": "s=3",
    "X-Api-Key": "s3",
    "X-Auth-Token": "s3",
    "X-Plain": "p",
}


def test_secrets_do_not_follow_to_another_origin() -> None:
    site = Site((307, "http://other.example:PORT/"))

    site.ask(resolve=Names(["127.0.0.1"]), headers=SECRET)

    headers = site.seen[1][2]
    assert headers["x-plain"] == "p"
    assert not {"authorization", "cookie", "x-api-key", "x-auth-token"} & headers.keys()
    assert headers["host"].startswith("other.example:")


def test_secrets_stay_with_their_origin() -> None:
    site = Site((307, "/there"))

    site.ask(headers=SECRET)

    assert site.seen[1][2]["authorization"] == "Bearer s3"


def test_a_name_that_changes_its_address_is_asked_once() -> None:
    names = Names(["127.0.0.1"], ["10.0.0.1"])
    site = Site()

    async def scenario() -> tuple[Outcome, Outcome]:
        async with a_world(resolve=names) as world, serving(site.answer) as port:
            url = f"http://rebinding.example:{port}/"
            return await call("http", {"url": url}, world), await call("http", {"url": url}, world)

    first, second = asyncio.run(scenario())

    assert output(first)["body"] == "here"
    assert output(second)["body"] == "here"  # the connection was kept; nobody was asked again
    assert names.asked == ["rebinding.example"]
    assert site.seen[0][2]["host"].startswith("rebinding.example:")


def test_a_name_that_leads_inside_is_not_connected_to() -> None:
    site = Site()

    async def scenario() -> Outcome:
        names = Names(["93.184.216.34", "127.0.0.1"])
        async with serving(site.answer) as port:
            world = Resources(resolve=names)
            outcome = await call("http", {"url": f"http://inside.example:{port}/"}, world)
            await world.close()
        return outcome

    assert error(asyncio.run(scenario())).code == "HTTP_BLOCKED"
    assert site.seen == []


def test_who_answers_is_looked_at_before_anything_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should a connection ever lead elsewhere than was resolved, nothing is sent over it."""
    site = Site()

    async def scenario() -> Outcome:
        async with serving(site.answer, host="0.0.0.0") as port:
            world = Resources(http_allow=("diverted.example",), resolve=Names(["127.0.0.2"]))
            create = asyncio.get_running_loop().create_connection

            async def diverted(factory: Any, *args: Any, **options: Any) -> Any:
                options.pop("sock").close()
                return await create(factory, "127.0.0.1", port)

            monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", diverted)
            outcome = await call("http", {"url": f"http://diverted.example:{port}/"}, world)
            await world.close()
        return outcome

    found = error(asyncio.run(scenario()))
    assert found.code == "HTTP_BLOCKED"
    assert "an address that was not allowed" in found.message
    assert site.seen == []


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_context(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


def secure(authority: trustme.CA, host: str, *names: str, **parameters: Any) -> Outcome:
    """A call to a server whose certificate is for `names`."""
    site = Site(*parameters.pop("moves", ()))

    async def scenario() -> Outcome:
        tls = server_context(authority, *names)
        async with a_world(resolve=Names(["127.0.0.1"])) as world, serving(site.answer, tls) as site.port:
            return await call("http", {"url": f"https://{host}:{site.port}/", **parameters}, world)

    return asyncio.run(scenario())


@pytest.fixture
def trusted(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system trusts the authority of the tests."""
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    monkeypatch.setenv("SSL_CERT_FILE", str(file))


@pytest.mark.usefixtures("trusted")
def test_the_certificate_is_that_of_the_name_and_not_of_the_address(authority: trustme.CA) -> None:
    assert output(secure(authority, "api.example", "api.example"))["body"] == "here"
    assert error(secure(authority, "api.example", "other.example")).code == "HTTP_TLS"
    assert error(secure(authority, "api.example", "127.0.0.1")).code == "HTTP_TLS"


def test_an_unknown_authority_is_not_trusted(authority: trustme.CA) -> None:
    assert error(secure(authority, "api.example", "api.example")).code == "HTTP_TLS"


def test_any_certificate_will_do_if_the_node_says_so(authority: trustme.CA) -> None:
    assert output(secure(authority, "api.example", "other.example", ignore_ssl=True))["body"] == "here"


@pytest.mark.usefixtures("trusted")
def test_no_redirect_gives_up_encryption(authority: trustme.CA) -> None:
    outcome = secure(authority, "api.example", "api.example", moves=[(302, "http://127.0.0.1:PORT/")])

    assert error(outcome).code == "HTTP_REDIRECT"


def talk_to(talk: Raw, scheme: str = "http", **parameters: Any) -> Outcome:
    async def scenario() -> Outcome:
        async with a_world() as world, listening(talk) as port:
            return await call("http", {"url": f"{scheme}://127.0.0.1:{port}/", **parameters}, world)

    return asyncio.run(scenario())


def saying(text: bytes) -> Raw:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(text)
        await writer.drain()

    return talk


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
        b"HTTP/1.1 99999 Hm\r\n\r\n",
        b"\x16\x03\x01\x00\x00",
        b"220 mail ready\r\n",
    ],
    ids=range(12),
)
def test_a_server_that_talks_nonsense_is_an_error(text: bytes) -> None:
    assert error(talk_to(saying(text), timeout=5)).code == "HTTP_PROTOCOL"


def test_no_tls_where_there_should_be_some() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    assert error(talk_to(talk, "https")).code == "HTTP_TLS"


def test_nobody_there_is_no_connection() -> None:
    async def scenario() -> Outcome:
        async with serving(Site().answer) as port:
            pass
        async with a_world() as world:
            return await call("http", {"url": f"http://127.0.0.1:{port}/?token=abc"}, world)

    found = error(asyncio.run(scenario()))
    assert found.code == "HTTP_CONNECT"
    assert "abc" not in found.message


def test_a_name_nobody_knows_is_no_connection() -> None:
    async def unknown(host: str, port: int) -> list[str]:
        raise OSError(-2, "Name or service not known")

    async def scenario() -> Outcome:
        async with a_world(resolve=unknown) as world:
            return await call("http", {"url": "http://nobody.example/"}, world)

    assert error(asyncio.run(scenario())).code == "HTTP_CONNECT"


def test_a_name_that_nobody_answers_for_is_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rune.nodes.io.http_client.ssrf.RESOLVE_TIMEOUT_S", 0.05)

    async def silent(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    async def scenario() -> Outcome:
        async with a_world(resolve=silent) as world:
            return await call("http", {"url": "http://silent.example/"}, world)

    assert error(asyncio.run(scenario())).code == "HTTP_CONNECT"
