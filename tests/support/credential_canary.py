"""Credentials with known values, servers that repeat them in every encoding, and a search for leaked values.

The encodings are computed here and not by the redactor under test.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, quote_plus, unquote_plus

from aiohttp import web

from tests.support.io_nodes import http_server, tcp_server
from tests.support.smtp_server import MAIL, SmtpServer

CORE = "kanari9f3d0c7e51b"
PASSWORD = f'p/{CORE}+"ü é&'
TOKEN = f"t-{CORE}-t"
FETCHED = f"f-{CORE}-f"


def traces() -> dict[str, bytes]:
    """The encodings of the part that all secret values share, at any position in a text, and of each value."""
    found = {
        "plain": CORE.encode(),
        "reversed case": CORE.upper().encode(),
        "hex": CORE.encode().hex().encode(),
    }
    for offset in range(3):
        text = base64.b64encode(b"\0" * offset + CORE.encode())
        found[f"base64 at {offset}"] = text[4:-4]
    for number, value in enumerate((PASSWORD, TOKEN, FETCHED)):
        found[f"value {number}"] = value.encode()
        found[f"quoted {number}"] = quote(value, safe="").encode()
        found[f"form {number}"] = quote_plus(value).encode()
        found[f"json {number}"] = json.dumps(value)[1:-1].encode()
    return found


def leaks(data: bytes | str) -> list[str]:
    """The names of the encodings that occur in the data."""
    raw = data.encode() if isinstance(data, str) else data
    return [name for name, trace in traces().items() if trace in raw]


class EchoServer:
    """A web server that repeats each request in every encoding."""

    def __init__(self) -> None:
        self.requests: list[str] = []

    async def __call__(self, request: web.Request) -> web.Response:
        text = f"{dict(request.headers)} {request.raw_path} {await request.text()}"
        self.requests.append(text)
        secrets = _received_secrets(request.headers.get("Authorization", ""), text)
        body = {
            "said": text,
            "values": list(secrets),
            "json": json.dumps({each: each for each in secrets}),
            "base64": [
                base64.b64encode(b"x" * n + each.encode() + b"y").decode()
                for each in secrets
                for n in range(3)
            ],
            "url": [f"https://me:{quote(each, safe='')}@x.example/?q={quote_plus(each)}" for each in secrets],
            "keys": {each: [{each: each}] for each in secrets},
            "hex": [each.encode().hex() for each in secrets],
            "wrapped": [base64.encodebytes(b"x" * 60 + each.encode()).decode() for each in secrets],
            "references": ["".join(f"&#{ord(letter)};" for letter in each) for each in secrets],
            "escapes": ["".join(f"\\u{ord(letter):04x}" for letter in each) for each in secrets],
            "upper": [each.upper() for each in secrets],
        }
        if request.path == "/token":
            return web.json_response(
                {"access_token": FETCHED, "token_type": "bearer", "expires_in": 60, **body}
            )
        status = int(request.query.get("status", 200))
        headers = {"X-Said": quote(text), "X-Auth": request.headers.get("Authorization", "none")}
        if request.path == "/bytes":
            return web.Response(
                body=b"\0\xff" + json.dumps(body, ensure_ascii=False).encode(), headers=headers
            )
        return web.json_response(body, status=status, headers=headers)


def _received_secrets(authorization: str, text: str) -> list[str]:
    """The secrets that a request contains."""
    scheme, _, rest = authorization.partition(" ")
    clear = base64.b64decode(rest).decode() if scheme == "Basic" else authorization
    decoded = f"{unquote_plus(clear)} {unquote_plus(text)}"
    found = [each for each in (PASSWORD, TOKEN, FETCHED) if each in decoded]
    return [*found, f"me:{PASSWORD}"] if PASSWORD in found else found


@contextlib.contextmanager
def echo_servers(web_server: EchoServer, sink: SmtpServer) -> Iterator[tuple[int, int]]:
    """Run a web server and a mail server in a separate thread; yield their ports."""
    loop = asyncio.new_event_loop()
    ports: list[int] = []
    ready, stop = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with http_server(web_server) as http, tcp_server(sink.handle) as smtp:
            ports.extend((http, smtp))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(10), "the servers did not start"
        yield ports[0], ports[1]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


def credentials(http: int, smtp: int) -> dict[str, dict[str, Any]]:
    client = {"client_id": "me", "client_secret": PASSWORD}
    return {
        "basic": {"username": "me", "password": PASSWORD},
        "bearer": {"token": TOKEN, "base_url": f"http://127.0.0.1:{http}/v1"},
        "header": {"name": "X-Auth", "value": TOKEN},
        "api_key": {"key": PASSWORD, "name": "k", "place": "query"},
        "oauth2": {"token_url": f"http://127.0.0.1:{http}/token", **client},
        "oauth2-body": {
            "token_url": f"http://127.0.0.1:{http}/refuses?status=401",
            "send_as": "body",
            **client,
        },
        "smtp": {
            "host": "127.0.0.1",
            "port": smtp,
            "security": "none",
            "username": "me",
            "password": PASSWORD,
        },
        "custom": {"password": PASSWORD},
    }


def workflow(http: int, *, waits: bool) -> dict[str, Any]:
    """A workflow in which every node fails or repeats a secret; with `waits`, its execution does not end."""
    url = f"http://127.0.0.1:{http}"
    bad = {"raise_on_status": "4xx,5xx"}
    calls: dict[str, tuple[str, str, dict[str, Any]]] = {
        "fails": ("http", "basic", {"url": f"{url}/?status=500", **bad, "retry": 1, "retry_delay": 0}),
        "echoes": ("http", "basic", {"url": f"{url}/"}),
        "bearer": ("http", "bearer", {"url": f"{url}/?status=403", **bad}),
        "header": ("http", "header", {"url": f"{url}/"}),
        "query": ("http", "api_key", {"url": f"{url}/?status=500", **bad}),
        "nobody": ("http", "api_key", {"url": "http://127.0.0.1:9/"}),
        "oauth": ("http", "oauth2", {"url": f"{url}/?status=401", **bad}),
        "refused": ("http", "oauth2-body", {"url": f"{url}/"}),
        "bytes": ("http", "bearer", {"url": f"{url}/bytes", "response": "blob"}),
        "model": ("llm_service", "bearer", {"model": "m", "prompt": "p"}),
        "mail": ("smtp", "smtp", dict(MAIL)),
        "tells": ("canary.tell", "custom", {}),
        "raises": ("canary.fail", "custom", {}),
    }
    nodes: list[dict[str, Any]] = [{"id": "start", "type": "input"}]
    edges: list[dict[str, Any]] = []
    for name, (type, credential, parameters) in calls.items():
        nodes.append(
            {
                "id": name,
                "type": type,
                "parameters": parameters,
                "credentials": {"name": credential},
                "error": "ignore",
            }
        )
        nodes.append({"id": f"after-{name}", "type": "log", "parameters": {"message": "{{ $json }}"}})
        edges += [{"src": "start", "dst": name}, {"src": name, "dst": f"after-{name}"}]
    if waits:
        nodes.append({"id": "nap", "type": "wait", "parameters": {"resume": "signal", "name": "never"}})
        edges.append({"src": "start", "dst": "nap"})
    return {"id": "canary", "nodes": nodes, "edges": edges}
