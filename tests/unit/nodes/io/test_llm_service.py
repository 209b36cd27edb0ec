"""`llm_service` against an endpoint of our own: kind, slow, broken and endless."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from rune.core.execution.outcome import Outcome
from rune.nodes.io.llm_service import MAX_EVENT_BYTES, Events, EventTooLongError
from rune.nodes.registry import standard_catalogue
from tests.unit.nodes.io.calling import KEY, NOW, Handler, call, listening, local_world, serving
from tests.unit.nodes.running import error, output

SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def asked(handler: Handler, told: Callable[[float | str], None] | None = None, **parameters: Any) -> Outcome:
    async def scenario() -> Outcome:
        world = local_world()
        async with serving(handler) as port:
            given = {"base_url": f"http://127.0.0.1:{port}/v1", "model": "m", "prompt": "Hi", **parameters}
            outcome = await call(
                "llm_service", {k: v for k, v in given.items() if v is not None}, world, told=told
            )
            await world.close()
        return outcome

    return asyncio.run(scenario())


def chunk(text: str | None = None, finish: str | None = None, **more: Any) -> str:
    choices = [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]
    return json.dumps({"id": "c", "object": "chat.completion.chunk", "choices": choices, **more})


def whole(text: str, **more: Any) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        choices = [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]
        return web.json_response({"choices": choices, "usage": USAGE, **more})

    return answer


def streaming(*data: str, end: bytes = b"data: [DONE]\n\n", mark: str = "\n") -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        for each in data:
            await response.write(f"data: {each}{mark}{mark}".encode())
        await response.write(end)
        return response

    return answer


class Endpoint:
    """Keeps what it was sent, then answers."""

    def __init__(self, answer: Handler) -> None:
        self._answer = answer
        self.path = ""
        self.body: Any = None
        self.headers: dict[str, str] = {}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.path = request.raw_path
        self.body = await request.json()
        self.headers = {name.lower(): text for name, text in request.headers.items()}
        return await self._answer(request)


def test_a_prompt_is_answered() -> None:
    endpoint = Endpoint(whole("Hello"))

    found = output(asked(endpoint.answer, system="Be brief.", temperature=0.5, max_tokens=9, stream=False))

    assert found == {"text": "Hello", "json": None, "usage": USAGE, "finish_reason": "stop"}
    assert endpoint.path == "/v1/chat/completions"
    assert endpoint.headers["idempotency-key"] == KEY
    assert endpoint.body == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "temperature": 0.5,
        "max_tokens": 9,
    }


def test_a_conversation_is_sent_as_it_is() -> None:
    endpoint = Endpoint(whole("Hello"))
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [{"type": "text", "text": "b"}]},
    ]

    output(asked(endpoint.answer, prompt=None, messages=messages))

    assert endpoint.body["messages"] == messages
    assert endpoint.body["stream"] is True


def test_the_query_of_an_endpoint_stays() -> None:
    endpoint = Endpoint(whole("x"))

    async def scenario() -> Outcome:
        world = local_world()
        async with serving(endpoint.answer) as port:
            url = f"http://127.0.0.1:{port}/openai/?api-version=1"
            outcome = await call("llm_service", {"base_url": url, "model": "m", "prompt": "p"}, world)
            await world.close()
        return outcome

    output(asyncio.run(scenario()))
    assert endpoint.path == "/openai/chat/completions?api-version=1"


@pytest.mark.parametrize("mark", ["\n", "\r\n", "\r"])
def test_pieces_are_put_together_and_told(mark: str) -> None:
    told: list[float | str] = []
    usage = json.dumps({"choices": [], "usage": USAGE})
    handler = streaming(chunk(""), chunk("Hel"), chunk("lo ü"), chunk(None, "stop"), usage, mark=mark)

    found = output(asked(handler, told.append))

    assert found == {"text": "Hello ü", "json": None, "usage": USAGE, "finish_reason": "stop"}
    assert told[-1] == "7 characters"


def test_an_endpoint_that_does_not_stream_will_do() -> None:
    assert output(asked(whole("Hello")))["text"] == "Hello"


def test_a_stream_that_says_it_is_done_need_not_end() -> None:
    done = asyncio.Event

    async def answer(request: web.Request) -> web.StreamResponse:
        response = await streaming(chunk("x", "stop"))(request)
        await done().wait()
        return response

    assert output(asked(answer, timeout=5))["text"] == "x"


def test_a_stream_without_a_last_word_is_complete_if_the_answer_is() -> None:
    assert output(asked(streaming(chunk("x", "stop"), end=b"")))["text"] == "x"


@pytest.mark.parametrize("text", ['{"n": 1}', ' {"n": 1}\n', '```json\n{"n": 1}\n```'])
def test_json_is_asked_for_and_checked(text: str) -> None:
    endpoint = Endpoint(streaming(chunk(text, "stop")))

    assert output(asked(endpoint.answer, json_schema=SCHEMA))["json"] == {"n": 1}
    assert endpoint.body["response_format"]["json_schema"]["schema"] == SCHEMA


@pytest.mark.parametrize(
    "text", ["no json", "", '{"n": "x"}', "{}", "[1]", '{"n": 1', '{"n": NaN}', '{"n":1,"n":2}', "[" * 5000]
)
def test_json_that_does_not_fit_is_an_error(text: str) -> None:
    found = error(asked(streaming(chunk(text, "stop")), json_schema=SCHEMA))

    assert found.code == "LLM_INVALID_JSON"
    assert found.details["text"] == text[:1000]
    assert found.details["problems"]


def test_json_that_was_cut_off_is_told_so() -> None:
    found = error(asked(streaming(chunk('{"n":', "length")), json_schema=SCHEMA))

    assert "truncated at the token limit" in found.message


def refusing(status: int, body: str = "why", **headers: str) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(
            status=status, text=body, headers={name.replace("_", "-"): text for name, text in headers.items()}
        )

    return answer


@pytest.mark.parametrize(
    ("status", "headers", "code", "retry_at"),
    [
        (429, {"Retry_After": "7"}, "LLM_RATE_LIMITED", NOW + 7000),
        (429, {}, "LLM_RATE_LIMITED", None),
        (503, {"Retry_After": "2"}, "LLM_STATUS", NOW + 2000),
        (401, {}, "LLM_STATUS", None),
        (302, {"Location": "http://169.254.169.254/"}, "LLM_STATUS", None),
    ],
)
def test_refusals(status: int, headers: dict[str, str], code: str, retry_at: int | None) -> None:
    found = error(asked(refusing(status, **headers)))

    assert (found.code, found.details["status"], found.details["body"]) == (code, status, "why")
    assert found.details.get("retry_at") == retry_at
    assert "/v1/chat/completions" in found.message


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    while True:
        await response.write(b": nothing to say\n" * 4000)


async def one_long_event(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(b"data: ")
    while True:
        await response.write(b"x" * 65_536)


async def talkative(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    while True:
        await response.write(f"data: {chunk('x' * 100_000)}\n\n".encode())


async def closing(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(f"data: {chunk('x')}\n\n".encode())
    assert request.transport is not None
    request.transport.abort()
    return response


@pytest.mark.parametrize(
    ("handler", "code"),
    [
        (streaming(chunk("Hel"), end=b""), "LLM_PROTOCOL"),
        (streaming("{not json"), "LLM_PROTOCOL"),
        (streaming('{"choices": 5}'), "LLM_PROTOCOL"),
        (streaming('{"choices": [{"delta": {"content": 5}}]}'), "LLM_PROTOCOL"),
        (streaming("[" * 100_000), "LLM_PROTOCOL"),
        (streaming('{"error": {"message": "overloaded"}}'), "LLM_STATUS"),
        (streaming(end=b""), "LLM_PROTOCOL"),
        (refusing(200, "<html>"), "LLM_PROTOCOL"),
        (refusing(200, ""), "LLM_PROTOCOL"),
        (refusing(200, "{}"), "LLM_PROTOCOL"),
        (refusing(200, '"' + "x" * (17 * 1024 * 1024) + '"'), "LLM_TOO_LARGE"),
        (closing, "LLM_PROTOCOL"),
        (endless, "LLM_TOO_LARGE"),
        (one_long_event, "LLM_TOO_LARGE"),
        (talkative, "LLM_TOO_LARGE"),
    ],
    ids=range(15),
)
def test_answers_that_are_none(handler: Handler, code: str) -> None:
    found = error(asked(handler, timeout=20))

    assert found.code == code
    assert "/v1/chat/completions" in found.message


def test_a_slow_answer_is_not_waited_for() -> None:
    async def dripping(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        while True:
            await response.write(b"d")
            await patience()

    async def patience() -> None:
        await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=0.01)

    assert error(asked(dripping, timeout=0.3)).code == "LLM_TIMEOUT"


def test_nobody_there_and_no_tls() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async def scenario() -> list[Outcome]:
        world = local_world()
        async with listening(talk) as port:
            pass
        async with listening(talk) as other:
            urls = [
                f"http://127.0.0.1:{port}",
                f"https://127.0.0.1:{other}",
                "http://10.0.0.1/v1",
                "file:///x",
            ]
            calls: list[Awaitable[Outcome]] = [
                call("llm_service", {"base_url": url, "model": "m", "prompt": "p"}, world) for url in urls
            ]
            found = await asyncio.gather(*calls)
        await world.close()
        return list(found)

    assert [error(each).code for each in asyncio.run(scenario())] == [
        "LLM_CONNECT",
        "LLM_CONNECT",
        "HTTP_BLOCKED",
        "HTTP_BLOCKED",
    ]


def test_somebody_must_name_the_endpoint() -> None:
    found = error(asked(whole("x"), base_url=None))

    assert (found.code, "base_url" in found.message) == ("BAD_PARAMETER", True)


@pytest.mark.parametrize(
    "schema", [{"type": "nonsense"}, {"$ref": "http://elsewhere/x"}, {"pattern": "(?=x)"}], ids=range(3)
)
def test_a_schema_that_cannot_be_used_is_refused_before_anything_runs(schema: dict[str, Any]) -> None:
    given = {"model": "m", "prompt": "p", "json_schema": schema}

    (found,) = standard_catalogue()["llm_service"].check(given, lambda text: False)

    assert found.path.startswith("json_schema")


def test_events_come_in_any_pieces() -> None:
    text = b": hello\n\ndata: a\r\ndata:b\r\rid: 7\rdata:  c\n\nevent: x\ndata\n\ndata: cut"
    expected = ["a\nb", " c", ""]

    for size in (1, 2, 3, 7, 1000):
        events = Events()
        found = [each for at in range(0, len(text), size) for each in events.feed(text[at : at + size])]
        assert found == expected, size


def fed_for_ever(piece: bytes) -> None:
    events = Events()
    for _ in range(MAX_EVENT_BYTES // 1000 + 2):
        events.feed(piece)


@pytest.mark.parametrize("piece", [b"x" * 1000, b"data: " + b"x" * 1000 + b"\n"])
def test_an_event_has_an_end(piece: bytes) -> None:
    with pytest.raises(EventTooLongError):
        fed_for_ever(piece)
