"""`http` against real servers: what is sent, what comes back, and what hostile servers get."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from rune.core.definition.model import Retry
from rune.core.execution.outcome import Failure, Outcome, Output
from rune.nodes.io import http
from tests.unit.nodes.io.calling import KEY, NOW, Handler, call, local_world, serving
from tests.unit.nodes.running import error, output


def ask(handler: Handler, path: str = "/", key: str = KEY, **parameters: Any) -> Outcome:
    """One call to a server of our own."""

    async def scenario() -> Outcome:
        world = local_world()
        try:
            async with serving(handler) as port:
                return await call(
                    "http", {"url": f"http://127.0.0.1:{port}{path}", **parameters}, world, key=key
                )
        finally:
            await world.close()

    return asyncio.run(scenario())


def answering(body: bytes | str = b"", status: int = 200, **headers: str) -> Handler:
    """A handler that always gives this."""
    named = {"Content-Type": "text/plain"}
    named |= {name.replace("_", "-"): text for name, text in headers.items()}

    async def answer(request: web.Request) -> web.Response:
        data = body.encode() if isinstance(body, str) else body
        return web.Response(body=data, status=status, headers=named)

    return answer


async def echo(request: web.Request) -> web.Response:
    return web.json_response(
        {
            "method": request.method,
            "path": request.raw_path,
            "headers": {name.lower(): text for name, text in request.headers.items()},
            "body": await request.text(),
        }
    )


def echoed(**parameters: Any) -> Any:
    return output(ask(echo, **parameters))["body"]


def test_values_that_are_no_text_are_sent() -> None:
    seen = echoed(
        path="/p?z=0",
        query={"n": 2, "f": 1.5, "b": True, "t": "a b&c", "none": None, "many": [1, "x"]},
        headers={"X-N": 3, "X-B": False, "X-None": None, "X-Many": [1, 2]},
    )

    assert seen["path"] == "/p?z=0&n=2&f=1.5&b=true&t=a+b%26c&many=1&many=x"
    assert seen["headers"]["x-n"] == "3"
    assert seen["headers"]["x-b"] == "false"
    assert seen["headers"]["x-many"] == "1, 2"
    assert "x-none" not in seen["headers"]


@pytest.mark.parametrize(
    ("body", "headers", "text", "content_type"),
    [
        ({"a": [1, None]}, {}, '{"a":[1,null]}', "application/json"),
        ([1], {}, "[1]", "application/json"),
        (5, {}, "5", "application/json"),
        ("plain ü", {}, "plain ü", "text/plain; charset=utf-8"),
        ("<a/>", {"content-type": "application/xml"}, "<a/>", "application/xml"),
        (
            {"a": 1, "b": ["x y", "&"], "c": None},
            {"Content-Type": "application/x-www-form-urlencoded"},
            "a=1&b=x+y&b=%26",
            "application/x-www-form-urlencoded",
        ),
    ],
)
def test_bodies(body: Any, headers: dict[str, str], text: str, content_type: str) -> None:
    seen = echoed(method="POST", body=body, headers=headers)

    assert seen["body"] == text
    assert seen["headers"]["content-type"] == content_type


def test_a_large_body_arrives() -> None:
    async def measure(request: web.Request) -> web.Response:
        return web.json_response([request.content_length, len(await request.read())])

    outcome = ask(measure, method="PUT", body="x" * 900_000)

    assert output(outcome)["body"] == [900_000, 900_000]


def test_the_same_effect_has_the_same_key() -> None:
    assert echoed()["headers"]["idempotency-key"] == KEY
    assert "idempotency-key" not in echoed(key="")["headers"]
    assert echoed(headers={"Idempotency-Key": "mine"})["headers"]["idempotency-key"] == "mine"


def test_numbers_may_be_written_as_text() -> None:
    parameters = {
        "timeout": "5",
        "max_bytes": "1000000",
        "follow_redirects": "true",
        "raise_on_status": "404",
    }

    assert output(ask(answering("x"), **parameters))["status"] == 200


def test_retry_parameters_become_the_policy_of_the_node() -> None:
    assert http.TYPE.retry is not None
    found = http.TYPE.retry({"retry": "3", "retry_delay": "0.5"})
    assert found is not None

    policy = Retry(**found)

    assert (policy.max_attempts, policy.initial_delay, policy.backoff) == (4, 0.5, 1.0)


@pytest.mark.parametrize(
    "headers",
    [
        {"X": "a\r\nEvil: 1"},
        {"X": "a\x00"},
        {"X\r\nEvil": "1"},
        {"X Y": "1"},
        {"": "1"},
        {"Host": "inside"},
        {"Transfer-Encoding": "chunked"},
        {"content-length": 5},
        {"Proxy-Authorization": "x"},
    ],
)
def test_headers_cannot_break_out(headers: dict[str, Any]) -> None:
    assert error(ask(echo, headers=headers)).code == "BAD_PARAMETER"


@pytest.mark.parametrize(
    ("body", "content_type", "read"),
    [
        (b'{"a": 1}', "application/json", {"a": 1}),
        (b'{"a": 1}', "application/problem+json; charset=utf-8", {"a": 1}),
        ('{"a": "ü"}'.encode("utf-16"), "application/json; charset=utf-16", {"a": "ü"}),
        (b"", "application/json", None),
        (b'{"a": 1}', "text/plain", '{"a": 1}'),
        ("ü".encode("latin-1"), "text/plain; charset=ISO-8859-1", "ü"),
        (b"\xff", "text/plain; charset=unicode_escape", "\ufffd"),
        (b"\xff", "text/plain; charset=no-such", "\ufffd"),
        ("ü".encode(), "application/unheard-of", "ü"),
        (b"9007199254740993", "application/json", 9007199254740993),
    ],
)
def test_answers_are_read_by_their_type(body: bytes, content_type: str, read: Any) -> None:
    assert output(ask(answering(body, Content_Type=content_type)))["body"] == read


def test_headers_come_back_in_lower_case() -> None:
    async def answer(request: web.Request) -> web.Response:
        response = web.Response(text="x", headers={"X-One": "1"})
        response.headers.add("X-Two", "a")
        response.headers.add("X-Two", "b")
        response.headers.add("Set-Cookie", "a=1; Expires=Wed, 01 Jan 2031 00:00:00 GMT")
        return response

    found = output(ask(answer))

    assert found["headers"]["x-one"] == "1"
    assert found["headers"]["x-two"] == "a, b"
    assert found["headers"]["set-cookie"] == ["a=1; Expires=Wed, 01 Jan 2031 00:00:00 GMT"]
    assert found["duration_ms"] >= 0


@pytest.mark.parametrize(
    "body",
    [b"{", b"NaN", b"\xff", b"<html>", b"[" * 5000 + b"]" * 5000, b'{"a":1,"a":2}', b"1" * 5000],
)
def test_json_that_is_none_fails(body: bytes) -> None:
    assert error(ask(answering(body, Content_Type="application/json"))).code == "HTTP_BODY"


@pytest.mark.parametrize(
    ("listed", "status", "fails"),
    [
        (None, 500, False),
        ("4xx,5xx", 404, True),
        ("4xx, 5XX", 503, True),
        ("404", 404, True),
        (404, 404, True),
        ("404", 500, False),
        ("4xx", 302, False),
    ],
)
def test_which_statuses_fail(listed: Any, status: int, fails: bool) -> None:
    outcome = ask(answering("why", status), raise_on_status=listed)

    assert isinstance(outcome, Failure) is fails
    if fails:
        assert error(outcome).code == "HTTP_STATUS"
        assert error(outcome).details == {"status": status, "body": "why"}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7", 7), ("0", 0), ("Wed, 01 Jan 2020 00:00:00 GMT", 0), ("soon", None), ("-1", None)],
)
def test_a_server_says_when_to_come_again(text: str, seconds: int | None) -> None:
    found = error(ask(answering("", 503, Retry_After=text), raise_on_status="5xx"))

    assert found.details.get("retry_at") == (None if seconds is None else NOW + 1000 * seconds)


def test_an_error_shows_no_secret() -> None:
    found = error(ask(answering("", 500), path="/x?api_key=hunter2&page=3", raise_on_status="5xx"))

    assert "hunter2" not in found.message
    assert "page=3" in found.message


Pack = Callable[[bytes], bytes]


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", raw_deflate), ("identity", bytes)],
)
def test_packed_answers_are_unpacked(encoding: str, pack: Pack) -> None:
    data = json.dumps(list(range(5000))).encode()

    found = output(ask(answering(pack(data), Content_Encoding=encoding, Content_Type="application/json")))

    assert found["body"] == list(range(5000))


def test_gzip_may_come_in_several_members() -> None:
    data = gzip.compress(b"one ", mtime=0) + gzip.compress(b"two", mtime=0)

    assert (
        output(ask(answering(data, Content_Encoding="gzip", Content_Type="text/plain")))["body"] == "one two"
    )


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_a_bomb_is_noticed_while_it_goes_off(encoding: str, pack: Pack) -> None:
    found = error(ask(answering(pack(b"\0" * 50_000_000), Content_Encoding=encoding)))

    assert found.code == "HTTP_TOO_LARGE"
    assert "times its size" in found.message


def test_what_is_unpacked_counts() -> None:
    handler = answering(gzip.compress(b"x" * 2000, mtime=0), Content_Encoding="gzip")

    assert error(ask(handler, max_bytes=1999)).code == "HTTP_TOO_LARGE"
    assert len(output(ask(handler, max_bytes=2000))["body"]) == 2000


@pytest.mark.parametrize(
    ("body", "encoding"),
    [(b"no gzip", "gzip"), (gzip.compress(b"x" * 500, mtime=0)[:-12], "gzip"), (b"x", "br")],
)
def test_badly_packed_answers_fail(body: bytes, encoding: str) -> None:
    assert error(ask(answering(body, Content_Encoding=encoding))).code == "HTTP_PROTOCOL"


def test_an_answer_that_does_not_end_is_cut() -> None:
    sent = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65_536)
            sent += 65_536

    assert error(ask(answer, max_bytes=1_000_000)).code == "HTTP_TOO_LARGE"
    assert sent < 20_000_000


def test_a_slow_answer_is_not_waited_for() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"x")
        await asyncio.Event().wait()
        return response

    found = error(ask(answer, timeout=0.2))

    assert found.code == "HTTP_TIMEOUT"
    assert "0.2 s" in found.message


def test_pages_are_followed() -> None:
    async def answer(request: web.Request) -> web.Response:
        page = int(request.query.get("page", "1"))
        link = f'</x?page={page - 1}>; rel="prev", </x?page={page + 1}>; rel="next"' if page < 4 else ""
        return web.json_response([page], headers={"Link": link})

    assert output(ask(answer, follow_next=True))["body"] == [1, 2, 3, 4]
    limited = output(ask(answer, follow_next=2))
    assert (limited["body"], limited["pages"]) == ([1, 2, 3], 3)
    assert output(ask(answer))["body"] == [1]


def test_calls_share_connections_and_wait_for_their_turn() -> None:
    now, most, ports = 0, 0, set()
    three = asyncio.Barrier(3)

    async def answer(request: web.Request) -> web.Response:
        nonlocal now, most
        assert request.transport is not None
        ports.add(request.transport.get_extra_info("peername")[1])
        now += 1
        most = max(most, now)
        await three.wait()
        now -= 1
        return web.Response(text="x")

    async def scenario() -> list[Outcome]:
        world = local_world(http_per_host=3)
        async with serving(answer) as port:
            calls: list[Awaitable[Outcome]] = [
                call("http", {"url": f"http://127.0.0.1:{port}/"}, world) for _ in range(30)
            ]
            outcomes = await asyncio.gather(*calls)
            await world.close()
        return list(outcomes)

    assert all(isinstance(each, Output) for each in asyncio.run(scenario()))
    assert most == 3
    assert len(ports) <= 3


def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    assert output(ask(answering("x")))["status"] == 200
