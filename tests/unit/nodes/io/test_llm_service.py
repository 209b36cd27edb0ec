"""The `llm_service` node against a test endpoint: valid, slow, malformed and endless responses."""

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
from tests.support.growth import assert_linear
from tests.support.io_nodes import KEY, NOW, HttpHandler, http_server, local_resources, run_node, tcp_server
from tests.unit.nodes.runner import error, output

SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def run_llm(
    handler: HttpHandler, progress: Callable[[float | str], None] | None = None, **parameters: Any
) -> Outcome:
    async def scenario() -> Outcome:
        resources = local_resources()
        async with http_server(handler) as port:
            given = {"base_url": f"http://127.0.0.1:{port}/v1", "model": "m", "prompt": "Hi", **parameters}
            outcome = await run_node(
                "llm_service", {k: v for k, v in given.items() if v is not None}, resources, progress=progress
            )
            await resources.close()
        return outcome

    return asyncio.run(scenario())


def chunk(text: str | None = None, finish: str | None = None, **more: Any) -> str:
    choices = [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]
    return json.dumps({"id": "c", "object": "chat.completion.chunk", "choices": choices, **more})


def json_response(text: str, **more: Any) -> HttpHandler:
    async def answer(request: web.Request) -> web.Response:
        choices = [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]
        return web.json_response({"choices": choices, "usage": USAGE, **more})

    return answer


def stream_response(*data: str, end: bytes = b"data: [DONE]\n\n", mark: str = "\n") -> HttpHandler:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        for each in data:
            await response.write(f"data: {each}{mark}{mark}".encode())
        await response.write(end)
        return response

    return answer


class Endpoint:
    """Records the request, then responds."""

    def __init__(self, answer: HttpHandler) -> None:
        self._answer = answer
        self.path = ""
        self.body: Any = None
        self.headers: dict[str, str] = {}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.path = request.raw_path
        self.body = await request.json()
        self.headers = {name.lower(): text for name, text in request.headers.items()}
        return await self._answer(request)


def test_prompt_returns_text_and_usage() -> None:
    endpoint = Endpoint(json_response("Hello"))

    found = output(run_llm(endpoint.answer, system="Be brief.", temperature=0.5, max_tokens=9, stream=False))

    assert found == {"text": "Hello", "json": None, "usage": USAGE, "finish_reason": "stop"}
    assert endpoint.path == "/v1/chat/completions"
    assert endpoint.headers["idempotency-key"] == KEY
    assert endpoint.body == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "temperature": 0.5,
        "max_tokens": 9,
    }


def test_messages_are_sent_unchanged() -> None:
    endpoint = Endpoint(json_response("Hello"))
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [{"type": "text", "text": "b"}]},
    ]

    output(run_llm(endpoint.answer, prompt=None, messages=messages))

    assert endpoint.body["messages"] == messages
    assert endpoint.body["stream"] is True


def test_query_of_base_url_is_kept() -> None:
    endpoint = Endpoint(json_response("x"))

    async def scenario() -> Outcome:
        resources = local_resources()
        async with http_server(endpoint.answer) as port:
            url = f"http://127.0.0.1:{port}/openai/?api-version=1"
            outcome = await run_node("llm_service", {"base_url": url, "model": "m", "prompt": "p"}, resources)
            await resources.close()
        return outcome

    output(asyncio.run(scenario()))
    assert endpoint.path == "/openai/chat/completions?api-version=1"


@pytest.mark.parametrize("mark", ["\n", "\r\n", "\r"])
def test_streamed_chunks_are_joined_and_reported(mark: str) -> None:
    progress: list[float | str] = []
    usage = json.dumps({"choices": [], "usage": USAGE})
    handler = stream_response(chunk(""), chunk("Hel"), chunk("lo ü"), chunk(None, "stop"), usage, mark=mark)

    found = output(run_llm(handler, progress.append))

    assert found == {"text": "Hello ü", "json": None, "usage": USAGE, "finish_reason": "stop"}
    assert progress[-1] == "7 characters"


def test_endpoint_without_streaming_is_supported() -> None:
    assert output(run_llm(json_response("Hello")))["text"] == "Hello"


def test_done_event_ends_open_stream() -> None:
    done = asyncio.Event

    async def answer(request: web.Request) -> web.StreamResponse:
        response = await stream_response(chunk("x", "stop"))(request)
        await done().wait()
        return response

    assert output(run_llm(answer, timeout=5))["text"] == "x"


def test_stream_without_done_event_is_complete_after_stop() -> None:
    assert output(run_llm(stream_response(chunk("x", "stop"), end=b"")))["text"] == "x"


@pytest.mark.parametrize(
    "text",
    [
        '{"n": 1}',
        ' {"n": 1}\n',
        '```json\n{"n": 1}\n```',
        '\n```  \r\n\n{"n":\n1}\n\n  ```\n',
    ],
)
def test_json_schema_is_sent_and_validated(text: str) -> None:
    endpoint = Endpoint(stream_response(chunk(text, "stop")))

    assert output(run_llm(endpoint.answer, json_schema=SCHEMA))["json"] == {"n": 1}
    assert endpoint.body["response_format"]["json_schema"]["schema"] == SCHEMA


@pytest.mark.parametrize(
    "text",
    [
        "no json", "", '{"n": "x"}', "{}", "[1]", '{"n": 1', '{"n": NaN}', '{"n":1,"n":2}', "[" * 5000,
        '```json {"n": 1}```', '```\n{"n": 1}', '```a b\n{"n": 1}\n```', '```\n{"n": 1}\nx```', "```", "```\n```",
    ],
)  # fmt: skip
def test_invalid_json_answer_fails(text: str) -> None:
    found = error(run_llm(stream_response(chunk(text, "stop")), json_schema=SCHEMA))

    assert found.code == "LLM_INVALID_JSON"
    assert found.details["text"] == text[:1000]
    assert found.details["problems"]


@pytest.mark.parametrize("unit", ["\n", " \n", "`", "```\n"])
def test_answer_of_line_breaks_and_fences_is_parsed_in_linear_time(unit: str) -> None:
    def work(size: int) -> None:
        text = "```json" + unit * (size // len(unit))
        found = error(run_llm(stream_response(chunk(text, "stop")), json_schema=SCHEMA))
        assert found.code == "LLM_INVALID_JSON"

    assert_linear(work, 2_000)


def test_truncated_json_answer_names_token_limit() -> None:
    found = error(run_llm(stream_response(chunk('{"n":', "length")), json_schema=SCHEMA))

    assert "truncated at the token limit" in found.message


def status_response(status: int, body: str = "why", **headers: str) -> HttpHandler:
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
def test_error_status_fails_with_code(
    status: int, headers: dict[str, str], code: str, retry_at: int | None
) -> None:
    found = error(run_llm(status_response(status, **headers)))

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


async def large_chunks(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    while True:
        await response.write(f"data: {chunk('x' * 100_000)}\n\n".encode())


async def aborted_stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(f"data: {chunk('x')}\n\n".encode())
    assert request.transport is not None
    request.transport.abort()
    return response


@pytest.mark.parametrize(
    ("handler", "code"),
    [
        (stream_response(chunk("Hel"), end=b""), "LLM_PROTOCOL"),
        (stream_response("{not json"), "LLM_PROTOCOL"),
        (stream_response('{"choices": 5}'), "LLM_PROTOCOL"),
        (stream_response('{"choices": [{"delta": {"content": 5}}]}'), "LLM_PROTOCOL"),
        (stream_response("[" * 100_000), "LLM_PROTOCOL"),
        (stream_response('{"error": {"message": "overloaded"}}'), "LLM_STATUS"),
        (stream_response(end=b""), "LLM_PROTOCOL"),
        (status_response(200, "<html>"), "LLM_PROTOCOL"),
        (status_response(200, ""), "LLM_PROTOCOL"),
        (status_response(200, "{}"), "LLM_PROTOCOL"),
        (status_response(200, '"' + "x" * (17 * 1024 * 1024) + '"'), "LLM_TOO_LARGE"),
        (aborted_stream, "LLM_PROTOCOL"),
        (endless, "LLM_TOO_LARGE"),
        (one_long_event, "LLM_TOO_LARGE"),
        (large_chunks, "LLM_TOO_LARGE"),
    ],
    ids=range(15),
)
def test_malformed_response_fails_with_code(handler: HttpHandler, code: str) -> None:
    found = error(run_llm(handler, timeout=20))

    assert found.code == code
    assert "/v1/chat/completions" in found.message


def test_slow_response_times_out() -> None:
    async def dripping(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        while True:
            await response.write(b"d")
            await patience()

    async def patience() -> None:
        await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=0.01)

    assert error(run_llm(dripping, timeout=0.3)).code == "LLM_TIMEOUT"


def test_unreachable_and_blocked_endpoints_fail() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async def scenario() -> list[Outcome]:
        resources = local_resources()
        async with tcp_server(handle) as port:
            pass
        async with tcp_server(handle) as other:
            urls = [
                f"http://127.0.0.1:{port}",
                f"https://127.0.0.1:{other}",
                "http://10.0.0.1/v1",
                "file:///x",
            ]
            calls: list[Awaitable[Outcome]] = [
                run_node("llm_service", {"base_url": url, "model": "m", "prompt": "p"}, resources)
                for url in urls
            ]
            found = await asyncio.gather(*calls)
        await resources.close()
        return list(found)

    assert [error(each).code for each in asyncio.run(scenario())] == [
        "LLM_CONNECT",
        "LLM_CONNECT",
        "HTTP_BLOCKED",
        "HTTP_BLOCKED",
    ]


def test_missing_base_url_fails() -> None:
    found = error(run_llm(json_response("x"), base_url=None))

    assert (found.code, "base_url" in found.message) == ("BAD_PARAMETER", True)


@pytest.mark.parametrize(
    "schema", [{"type": "nonsense"}, {"$ref": "http://elsewhere/x"}, {"pattern": "(?=x)"}], ids=range(3)
)
def test_invalid_json_schema_is_rejected_by_check(schema: dict[str, Any]) -> None:
    given = {"model": "m", "prompt": "p", "json_schema": schema}

    (found,) = standard_catalogue()["llm_service"].check(given, lambda text: False)

    assert found.path.startswith("json_schema")


def test_events_are_parsed_across_chunk_boundaries() -> None:
    text = b": hello\n\ndata: a\r\ndata:b\r\rid: 7\rdata:  c\n\nevent: x\ndata\n\ndata: cut"
    expected = ["a\nb", " c", ""]

    for size in (1, 2, 3, 7, 1000):
        events = Events()
        found = [each for at in range(0, len(text), size) for each in events.feed(text[at : at + size])]
        assert found == expected, size


def feed_until_too_long(piece: bytes) -> None:
    events = Events()
    for _ in range(MAX_EVENT_BYTES // 1000 + 2):
        events.feed(piece)


@pytest.mark.parametrize("piece", [b"x" * 1000, b"data: " + b"x" * 1000 + b"\n"])
def test_event_over_size_limit_raises(piece: bytes) -> None:
    with pytest.raises(EventTooLongError):
        feed_until_too_long(piece)
