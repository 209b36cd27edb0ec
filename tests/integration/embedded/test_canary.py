"""The canary: credentials whose values turn up nowhere, however loudly those who are called repeat them.

Real processes, real servers. What is searched for is made here and not by the redactor.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import pathlib
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, quote_plus, unquote_plus

from aiohttp import web

from tests.acceptance.cli.process import PATIENCE, Rune, until
from tests.integration.embedded.forks import PATHS
from tests.unit.nodes.io.calling import listening, serving
from tests.unit.nodes.io.test_smtp import MAIL, Sink

CORE = "kanari9f3d0c7e51b"
PASSWORD = f'p/{CORE}+"ü é&'
TOKEN = f"t-{CORE}-t"
FETCHED = f"f-{CORE}-f"


def traces() -> dict[str, bytes]:
    """What must be nowhere: the part that all the values share, as it is and encoded at any place in any text."""
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
    raw = data.encode() if isinstance(data, str) else data
    return [name for name, trace in traces().items() if trace in raw]


class Loud:
    """A web server that repeats whatever it is sent, in every way there is."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def __call__(self, request: web.Request) -> web.Response:
        said = f"{dict(request.headers)} {request.raw_path} {await request.text()}"
        self.heard.append(said)
        secrets = _understood(request.headers.get("Authorization", ""), said)
        told = {
            "said": said,
            "values": list(secrets),
            "json": json.dumps({each: each for each in secrets}),
            "base64": [
                base64.b64encode(b"x" * n + each.encode() + b"y").decode()
                for each in secrets
                for n in range(3)
            ],
            "url": [f"https://me:{quote(each, safe='')}@x.example/?q={quote_plus(each)}" for each in secrets],
            "keys": {each: [{each: each}] for each in secrets},
        }
        if request.path == "/token":
            return web.json_response(
                {"access_token": FETCHED, "token_type": "bearer", "expires_in": 60, **told}
            )
        status = int(request.query.get("status", 200))
        headers = {"X-Said": quote(said), "X-Auth": request.headers.get("Authorization", "none")}
        if request.path == "/bytes":
            return web.Response(
                body=b"\0\xff" + json.dumps(told, ensure_ascii=False).encode(), headers=headers
            )
        return web.json_response(told, status=status, headers=headers)


def _understood(authorization: str, said: str) -> list[str]:
    """The secrets that somebody sent: a server cannot repeat what it was not told."""
    scheme, _, rest = authorization.partition(" ")
    clear = base64.b64decode(rest).decode() if scheme == "Basic" else authorization
    told = f"{unquote_plus(clear)} {unquote_plus(said)}"
    found = [each for each in (PASSWORD, TOKEN, FETCHED) if each in told]
    return [*found, f"me:{PASSWORD}"] if PASSWORD in found else found


@contextlib.contextmanager
def surroundings(loud: Loud, sink: Sink) -> Iterator[tuple[int, int]]:
    """The ports of a web server and a mail server, in a loop of their own."""
    loop = asyncio.new_event_loop()
    ports: list[int] = []
    ready, stop = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with serving(loud) as http, listening(sink.talk) as smtp:
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
    """Every node fails or repeats what it heard; `waits`: and then the execution goes on."""
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


def stored(home: pathlib.Path) -> dict[str, bytes]:
    """Every file but the key."""
    files = [path for path in home.rglob("*") if path.is_file() and path.name != "secret.key"]
    return {path.name: path.read_bytes() for path in files}


def test_no_credential_is_ever_seen(tmp_path: pathlib.Path) -> None:
    rune = Rune(
        tmp_path / "home",
        PYTHONPATH=PATHS,
        RUNE_HTTP_ALLOW="127.0.0.1",
        RUNE_NODES="tests.integration.embedded.canary_nodes",
    )
    refusal = f"535 me:{PASSWORD} {base64.b64encode(f'{chr(0)}me{chr(0)}{PASSWORD}'.encode()).decode()}"
    sink = Sink({"AUTH": refusal, "MAIL": f"550 {PASSWORD}"})
    loud = Loud()
    seen: dict[str, str] = {}

    def run(*arguments: str) -> str:
        done = rune(*arguments)
        seen[" ".join(arguments)] = done.stdout + done.stderr
        return done.stdout

    with surroundings(loud, sink) as (http, smtp):
        for name, values in credentials(http, smtp).items():
            file = tmp_path / "given.json"
            file.write_text(json.dumps(values))
            run("credentials", "add", name, "--type", name.removesuffix("-body"), "--from-file", str(file))
        for waits in (True, False):
            (tmp_path / f"{waits}.json").write_text(json.dumps(workflow(http, waits=waits)))

        with rune.begin("run", str(tmp_path / "True.json"), "--id", "loud") as owner:
            try:
                until(lambda: _ended(rune, "loud", 2 * 13) or None, "everything has failed or been repeated")
                files = stored(rune.home)
                assert files["rune.db-wal"], "there is a log to look into"
                for command in ("show", "explain", "audit"):
                    run(command, "loud")
                    run(command, "loud", "--json")
                run("credentials", "list")
                run("credentials", "show", "basic", "--json")
            finally:
                owner.kill()
                out, err = owner.communicate(timeout=PATIENCE)
        seen["the owner"] = out + err
        told = json.loads(run("run", str(tmp_path / "False.json"), "--id", "again", "--json"))
        run("run", str(tmp_path / "False.json"), "--id", "text")
        run("list", "--json")
        run("watch", "again", "--json")
        run("watch", "again")
        run("show", "again", "--json", "--nodes", "100")
        run("doctor", "--json")

    _was_loud(told, loud, sink, seen)
    found = {name: leaks(text) for name, text in seen.items()}
    assert {name: each for name, each in found.items() if each} == {}
    for when, each in (("while it ran", files), ("at the end", stored(rune.home))):
        assert {name: leaks(data) for name, data in each.items() if leaks(data)} == {}, when


def _ended(rune: Rune, execution: str, count: int) -> bool:
    done = rune("show", execution, "--json")
    if done.returncode == 2:
        return False
    nodes = json.loads(done.stdout)["nodes"]
    return bool(sum(each["node_id"] != "start" for each in nodes) >= count)


def _was_loud(told: dict[str, Any], loud: Loud, sink: Sink, seen: dict[str, str]) -> None:
    """The test would find nothing if nothing had been said."""
    heard = "\n".join(loud.heard)
    assert base64.b64encode(f"me:{PASSWORD}".encode()).decode() in heard
    assert f"Bearer {TOKEN}" in heard
    assert f"Bearer {FETCHED}" in heard
    assert quote(PASSWORD, safe="") in heard
    assert quote_plus(PASSWORD) in heard  # the client's secret in a form
    assert any(line.startswith("AUTH") for line in sink.said)
    nodes = {each["node_id"]: each for each in told["nodes"]}
    assert nodes["fails"]["attempts"] == 2
    codes = {
        name: (each["error"] or {}).get("code")
        for name, each in nodes.items()
        if not name.startswith("after")
    }
    assert codes == {
        "start": None,
        "fails": "HTTP_STATUS",
        "echoes": None,
        "bearer": "HTTP_STATUS",
        "header": None,
        "query": "HTTP_STATUS",
        "nobody": "HTTP_CONNECT",
        "oauth": "HTTP_STATUS",
        "refused": "CREDENTIAL_TOKEN",
        "bytes": None,
        "model": "LLM_PROTOCOL",
        "mail": "SMTP_AUTH",
        "tells": None,
        "raises": "NODE_ERROR",
    }
    assert nodes["tells"]["output"]["value"] == "***"
    assert "***" in nodes["raises"]["error"]["message"]
    assert nodes["header"]["output"]["headers"]["x-auth"] == "none"
    assert "the password is ***" in seen["the owner"]
