"""The `http` node with redirects, certificates, changing names and malformed responses."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from rune.core.execution.outcome import Outcome
from rune.nodes.base import Resources
from tests.support.io_nodes import (
    RedirectingServer,
    ScriptedResolver,
    TcpHandler,
    http_server,
    open_resources,
    run_node,
    tcp_server,
)
from tests.support.services.listening import refusing_port
from tests.unit.nodes.runner import error, output


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
def test_redirect_is_followed_with_method_and_body(status: int, method: str, after: str, body: str) -> None:
    site = RedirectingServer((status, "/there?x=1"))

    assert output(site.send_request(method=method, body={"a": 1}))["body"] == "here"
    assert (site.requests[1][0], site.requests[1][1], site.requests[1][3]) == (after, "/there?x=1", body)
    assert ("content-type" in site.requests[1][2]) is bool(body)


def test_redirect_is_returned_without_follow_redirects() -> None:
    site = RedirectingServer((302, "/there"))

    assert output(site.send_request(follow_redirects=False))["status"] == 302
    assert len(site.requests) == 1


def test_more_than_five_redirects_fail() -> None:
    assert output(RedirectingServer(*[(302, "/")] * 5).send_request())["status"] == 200

    site = RedirectingServer(*[(302, "/")] * 6)
    assert error(site.send_request()).code == "HTTP_REDIRECT"
    assert len(site.requests) == 6


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
def test_redirect_to_blocked_address_fails(location: str) -> None:
    site = RedirectingServer((302, location))

    assert error(site.send_request(resolve=ScriptedResolver(["10.0.0.1"]))).code == "HTTP_BLOCKED"
    assert len(site.requests) == 1


SECRET_HEADERS = {
    "Authorization": "Bearer s3",
    "Cookie": "s=3",
    "X-Api-Key": "s3",
    "X-Auth-Token": "s3",
    "X-Plain": "p",
}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("other", ["other.example:PORT", "127.0.0.1:OTHER"])
def test_secret_headers_are_dropped_on_other_origin(status: int, other: str) -> None:
    site = RedirectingServer((status, f"http://{other}/"))

    site.send_request(resolve=ScriptedResolver(["127.0.0.1"]), method="POST", body={}, headers=SECRET_HEADERS)

    assert site.requests[0][2]["idempotency-key"]
    headers = site.requests[1][2]
    assert headers["x-plain"] == "p"
    private = {name.lower() for name in SECRET_HEADERS} - {"x-plain"} | {"idempotency-key"}
    assert not private & headers.keys()
    assert headers["host"] != site.requests[0][2]["host"]


def test_secret_headers_are_kept_on_same_origin() -> None:
    site = RedirectingServer((307, "/there"))

    site.send_request(headers=SECRET_HEADERS)

    assert site.requests[1][2]["authorization"] == "Bearer s3"


def test_rebinding_name_is_resolved_once() -> None:
    resolver = ScriptedResolver(["127.0.0.1"], ["10.0.0.1"])
    site = RedirectingServer()

    async def scenario() -> tuple[Outcome, Outcome]:
        async with open_resources(resolve=resolver) as resources, http_server(site.handle) as port:
            url = f"http://rebinding.example:{port}/"
            return await run_node("http", {"url": url}, resources), await run_node(
                "http", {"url": url}, resources
            )

    first, second = asyncio.run(scenario())

    assert output(first)["body"] == "here"
    assert output(second)["body"] == "here"  # over the same connection, without resolving again
    assert resolver.hosts == ["rebinding.example"]
    assert site.requests[0][2]["host"].startswith("rebinding.example:")


def test_name_with_private_address_is_blocked() -> None:
    site = RedirectingServer()

    async def scenario() -> Outcome:
        resolver = ScriptedResolver(["93.184.216.34", "127.0.0.1"])
        async with http_server(site.handle) as port:
            resources = Resources(resolve=resolver)
            outcome = await run_node("http", {"url": f"http://inside.example:{port}/"}, resources)
            await resources.close()
        return outcome

    assert error(asyncio.run(scenario())).code == "HTTP_BLOCKED"
    assert site.requests == []


def test_unexpected_peer_address_is_blocked_before_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection whose peer is not the resolved address is closed before the request is sent."""
    site = RedirectingServer()

    async def scenario() -> Outcome:
        async with http_server(site.handle, host="0.0.0.0") as port:
            resources = Resources(http_allow=("diverted.example",), resolve=ScriptedResolver(["127.0.0.2"]))
            create = asyncio.get_running_loop().create_connection

            async def diverted(factory: Any, *args: Any, **options: Any) -> Any:
                options.pop("sock").close()
                return await create(factory, "127.0.0.1", port)

            monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", diverted)
            outcome = await run_node("http", {"url": f"http://diverted.example:{port}/"}, resources)
            await resources.close()
        return outcome

    found = error(asyncio.run(scenario()))
    assert found.code == "HTTP_BLOCKED"
    assert "an address that was not allowed" in found.message
    assert site.requests == []


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_context(authority: trustme.CA, *resolver: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*resolver).configure_cert(context)
    return context


def request_over_tls(authority: trustme.CA, host: str, *resolver: str, **parameters: Any) -> Outcome:
    """A request to a server whose certificate is valid for `names`."""
    site = RedirectingServer(*parameters.pop("redirects", ()))

    async def scenario() -> Outcome:
        tls = server_context(authority, *resolver)
        async with (
            open_resources(resolve=ScriptedResolver(["127.0.0.1"])) as resources,
            http_server(site.handle, tls) as site.port,
        ):
            return await run_node("http", {"url": f"https://{host}:{site.port}/", **parameters}, resources)

    return asyncio.run(scenario())


@pytest.fixture
def trusted(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the test authority to the trusted certificates."""
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    monkeypatch.setenv("SSL_CERT_FILE", str(file))


@pytest.mark.usefixtures("trusted")
def test_certificate_must_match_host_name(authority: trustme.CA) -> None:
    assert output(request_over_tls(authority, "api.example", "api.example"))["body"] == "here"
    assert error(request_over_tls(authority, "api.example", "other.example")).code == "HTTP_TLS"
    assert error(request_over_tls(authority, "api.example", "127.0.0.1")).code == "HTTP_TLS"


def test_unknown_authority_is_rejected(authority: trustme.CA) -> None:
    assert error(request_over_tls(authority, "api.example", "api.example")).code == "HTTP_TLS"


def test_ignore_ssl_accepts_any_certificate(authority: trustme.CA) -> None:
    assert (
        output(request_over_tls(authority, "api.example", "other.example", ignore_ssl=True))["body"] == "here"
    )


@pytest.mark.usefixtures("trusted")
def test_redirect_from_https_to_http_fails(authority: trustme.CA) -> None:
    outcome = request_over_tls(
        authority, "api.example", "api.example", redirects=[(302, "http://127.0.0.1:PORT/")]
    )

    assert error(outcome).code == "HTTP_REDIRECT"


def request_from(handle: TcpHandler, scheme: str = "http", **parameters: Any) -> Outcome:
    async def scenario() -> Outcome:
        async with open_resources() as resources, tcp_server(handle) as port:
            return await run_node("http", {"url": f"{scheme}://127.0.0.1:{port}/", **parameters}, resources)

    return asyncio.run(scenario())


def raw_response(text: bytes) -> TcpHandler:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(text)
        await writer.drain()

    return handle


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
def test_malformed_response_is_protocol_error(text: bytes) -> None:
    assert error(request_from(raw_response(text), timeout=5)).code == "HTTP_PROTOCOL"


def test_plain_response_to_https_is_tls_error() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    assert error(request_from(handle, "https")).code == "HTTP_TLS"


def test_closed_port_is_connect_error() -> None:
    async def scenario() -> Outcome:
        with refusing_port() as port:
            async with open_resources() as resources:
                return await run_node("http", {"url": f"http://127.0.0.1:{port}/?token=abc"}, resources)

    found = error(asyncio.run(scenario()))
    assert found.code == "HTTP_CONNECT"
    assert "abc" not in found.message


def test_unknown_name_is_connect_error() -> None:
    async def unknown(host: str, port: int) -> list[str]:
        raise OSError(-2, "Name or service not known")

    async def scenario() -> Outcome:
        async with open_resources(resolve=unknown) as resources:
            return await run_node("http", {"url": "http://nobody.example/"}, resources)

    assert error(asyncio.run(scenario())).code == "HTTP_CONNECT"


def test_resolver_timeout_is_connect_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rune.nodes.io.http_client.ssrf.RESOLVE_TIMEOUT_S", 0.05)

    async def silent(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    async def scenario() -> Outcome:
        async with open_resources(resolve=silent) as resources:
            return await run_node("http", {"url": "http://silent.example/"}, resources)

    assert error(asyncio.run(scenario())).code == "HTTP_CONNECT"
