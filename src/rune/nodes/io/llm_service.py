"""The `llm_service` node: sends a conversation to an OpenAI-compatible endpoint and returns the completion.

The response is read as a whole or as a stream of server-sent events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from rune.codec.decode import MalformedDataError, decode
from rune.core.definition import problems as codes
from rune.core.definition.problems import Problem
from rune.core.definition.strict_json import MAX_DECODED_BYTES, decode_json
from rune.core.execution.outcome import Outcome, Output
from rune.core.json_decoder import JsonDecoder
from rune.documents.json_schema import NeedsThreadError, check_schema, check_value, short_checks
from rune.errors import NodeFailure
from rune.nodes.base import NodeCall
from rune.nodes.credentials import CREDENTIAL_ERRORS, PERMANENT_CREDENTIAL_ERRORS
from rune.nodes.io.http_client.request import KEY, Request, key_text
from rune.nodes.io.http_client.response import excerpt, is_permanent_status, read_decoded
from rune.nodes.io.http_client.ssrf import Target, target
from rune.nodes.redaction import redacted
from rune.nodes.schema import Model, declare, either
from rune.off_loop import off_loop_in_turn

if TYPE_CHECKING:
    from rune.nodes.io.http_client.client import Response

MAX_EVENT_BYTES = 1024 * 1024
MAX_RESPONSE_BYTES = 16 * 1024 * 1024
MAX_TEXT_CHARS = 4 * 1024 * 1024

_ERROR_BODY_BYTES = 16 * 1024
_FENCE = "```"
_CODES = {
    "HTTP_CONNECT": "LLM_CONNECT",
    "HTTP_TLS": "LLM_CONNECT",
    "HTTP_PROTOCOL": "LLM_PROTOCOL",
    "HTTP_TOO_LARGE": "LLM_TOO_LARGE",
}
_SCHEMA_HINT = "`json_schema` must be a self-contained JSON Schema (draft 2020-12)"


class Message(Model, kw_only=True, frozen=True):
    """One message of the conversation."""

    role: Annotated[str, Meta(min_length=1, description="`system`, `user` or `assistant`.")]
    content: Annotated[Any, Meta(description="Content of the message.")]


class Parameters(Model, kw_only=True, frozen=True):
    """The request to the model."""

    base_url: Annotated[
        str | None, Meta(description="URL of an OpenAI-compatible endpoint. Default: the credential's.")
    ] = None
    model: Annotated[str, Meta(min_length=1, description="Name of the model.")]
    prompt: Annotated[str | None, Meta(description="User message.")] = None
    messages: Annotated[
        Annotated[list[Message], Meta(min_length=1)] | None,
        Meta(description="Full conversation, instead of `prompt`."),
    ] = None
    system: Annotated[str | None, Meta(description="System message.")] = None
    temperature: Annotated[
        Annotated[float, Meta(ge=0, le=2)] | None,
        Meta(description="Sampling temperature. Default: the endpoint's."),
    ] = None
    max_tokens: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Maximum tokens to generate. Default: the endpoint's."),
    ] = None
    json_schema: Annotated[
        dict[str, Any] | None,
        Meta(description="JSON Schema that the completion is requested in and validated against."),
    ] = None
    stream: Annotated[
        bool, Meta(description="Stream the completion, so that subscribers see its progress.")
    ] = True
    timeout: Annotated[float, Meta(gt=0, description="Timeout in seconds for the whole completion.")] = 120


def _combined(parameters: Mapping[str, Any]) -> list[Problem]:
    problems = either(parameters, "prompt", "messages", required=True)
    if isinstance(parameters.get("json_schema"), dict):
        problems += [
            replace(each, path=each.path.replace("inputs", "json_schema", 1), hint=_SCHEMA_HINT)
            for each in check_schema(parameters["json_schema"])
        ]
    return problems


TYPE = declare(
    "llm_service",
    Parameters,
    kinds={"json_schema": "literal"},
    extra=_combined,
    summary="Calls a language model.",
    doc="Sends a conversation to `{base_url}/chat/completions` of an OpenAI-compatible endpoint and returns the "
    "completion. Private addresses are blocked unless allowed. The node's `retry` honours the delay that a rate "
    "limit requests.",
    output="`{text, json, usage, finish_reason}`; `json` is null without `json_schema`.",
    errors={
        "LLM_TIMEOUT": "no complete response before the timeout",
        "LLM_CONNECT": "the connection failed",
        "LLM_STATUS": "the endpoint rejected the request",
        "LLM_RATE_LIMITED": "the endpoint's rate limit was exceeded",
        "LLM_INVALID_JSON": "the completion does not match `json_schema`",
        "LLM_PROTOCOL": "the response is incomplete or not valid for such an endpoint",
        "LLM_TOO_LARGE": "the response exceeds 16 MiB or 4 million characters",
        "HTTP_BLOCKED": "the address is not allowed",
        **CREDENTIAL_ERRORS,
        "EXPRESSION_ERROR": "a parameter cannot be evaluated",
    },
    permanent=frozenset({"HTTP_BLOCKED"}) | PERMANENT_CREDENTIAL_ERRORS,
    by_status=frozenset({"LLM_STATUS"}),
    credentials=True,
    effectful=lambda parameters: True,
)


async def run(call: NodeCall[Parameters]) -> Outcome:
    """Send the conversation over the connection pool shared by the process."""
    return Output(await chat(call))


class EventTooLongError(ValueError):
    """An event exceeds the size limit."""


class Events:
    """Parser of server-sent events; fed with bytes, it returns the data of complete events."""

    def __init__(self) -> None:
        self._buffer: list[bytes] = []
        self._buffered_bytes = 0
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[str]:
        """Return the data of the events completed by this piece."""
        found: list[str] = []
        for line in self._lines(piece):
            if line:
                self._field(line)
            elif self._data:
                found.append(b"\n".join(self._data).decode("utf-8", "replace"))
                self._data, self._size = [], 0
        return found

    def _lines(self, piece: bytes) -> list[bytes]:
        """Return the lines completed by this piece; an incomplete line is buffered."""
        self._buffer.append(piece)
        self._buffered_bytes += len(piece)
        if self._buffered_bytes > MAX_EVENT_BYTES + len(piece):
            raise EventTooLongError(f"an event has more than {MAX_EVENT_BYTES:,} bytes")
        if b"\n" not in piece and b"\r" not in piece and not self._buffer[0].endswith(b"\r"):
            return []
        text = b"".join(self._buffer).replace(b"\r\n", b"\n")
        # A carriage return at the end may be the first half of a line break.
        held = b"\r" if text.endswith(b"\r") else b""
        lines = text.removesuffix(b"\r").replace(b"\r", b"\n").split(b"\n")
        self._buffer = [lines.pop() + held]
        self._buffered_bytes = len(self._buffer[0])
        return lines

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name != b"data":
            return
        self._data.append(value.removeprefix(b" "))
        self._size += len(value)
        if self._size > MAX_EVENT_BYTES:
            raise EventTooLongError(f"an event has more than {MAX_EVENT_BYTES:,} bytes")


class _Part(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Part | None = None
    message: _Part | None = None
    finish_reason: str | None = None
    index: int = 0


class _Chunk(msgspec.Struct):
    """A whole response or one chunk of it; other fields are ignored."""

    choices: list[_Choice] = []
    usage: dict[str, Any] | None = None
    error: Any = None


_CHUNK = JsonDecoder(_Chunk)


class Completion:
    """The completion received so far."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.usage: dict[str, Any] | None = None
        self.finish_reason: str | None = None
        self.length = 0
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def add(self, data: bytes | str) -> None:
        """Add one chunk."""
        try:
            chunk = decode(_CHUNK, data.encode() if isinstance(data, str) else data)
        except MalformedDataError:
            raise _invalid_response(self.label, "it is not a chat completion") from None
        if chunk.error:
            shown = chunk.error.get("message") if isinstance(chunk.error, dict) else chunk.error
            raise NodeFailure(f"{self.label}: {str(shown)[:300]}", code="LLM_STATUS")
        if chunk.usage is not None:
            self.usage = chunk.usage
        for choice in chunk.choices:
            if choice.index == 0:
                part = choice.delta or choice.message
                self._append(part.content if part is not None else None)
                self.finish_reason = choice.finish_reason or self.finish_reason

    def _append(self, text: str | None) -> None:
        if not text:
            return
        self.length += len(text)
        if self.length > MAX_TEXT_CHARS:
            raise NodeFailure(f"{self.label}: more than {MAX_TEXT_CHARS:,} characters", code="LLM_TOO_LARGE")
        self._pieces.append(text)


async def chat(call: NodeCall[Any]) -> dict[str, Any]:
    """Send the conversation and return the node's output."""
    # The client is imported on first use: aiohttp is slow to load.
    from rune.nodes.io.http_client.exchange import authorize  # noqa: PLC0415

    request = await _build_request(call)
    label = redacted(request.where.url)
    async with call.resources.http().host_limit(request.where):
        try:
            async with asyncio.timeout(call.parameters.timeout):
                completion = await _request_completion(call, await authorize(call, request), label)
        except TimeoutError:
            seconds = f"{call.parameters.timeout:g}"
            raise NodeFailure(
                f"{label}: no complete response within {seconds} s", code="LLM_TIMEOUT"
            ) from None
        except NodeFailure as failure:
            raise _map_error(failure) from None
    value = None if call.parameters.json_schema is None else await _read_json(call, completion)
    return {
        "text": completion.text,
        "json": value,
        "usage": completion.usage or {},
        "finish_reason": completion.finish_reason,
    }


def _map_error(failure: NodeFailure) -> NodeFailure:
    code = _CODES.get(failure.code)
    if code is None:
        return failure
    return NodeFailure(failure.message, code=code, details=failure.details, permanent=failure.permanent)


async def _build_request(call: NodeCall[Any]) -> Request:
    parameters = call.parameters
    headers = {
        "accept": "text/event-stream, application/json" if parameters.stream else "application/json",
        "accept-encoding": "identity",
        "content-type": "application/json",
        "user-agent": "rune",
    }
    if call.idempotency_key:
        headers[KEY] = key_text(call.idempotency_key)
    return Request("POST", await _endpoint(call), headers, msgspec.json.encode(_request_body(parameters)))


async def _endpoint(call: NodeCall[Any]) -> Target:
    base = call.parameters.base_url
    if not base:
        credential = await call.credential()
        base = None if credential is None else getattr(credential.fields, "base_url", None)
    if not base:
        raise NodeFailure(
            "parameters.base_url: neither the node nor its credential sets an endpoint",
            code=codes.BAD_PARAMETER,
        )
    found = target(base)
    path, mark, query = found.resource.partition("?")
    return replace(found, resource=f"{path.rstrip('/')}/chat/completions{mark}{query}")


def _request_body(parameters: Any) -> dict[str, Any]:
    messages = [msgspec.to_builtins(each) for each in parameters.messages or ()]
    if parameters.prompt is not None:
        messages = [{"role": "user", "content": parameters.prompt}]
    if parameters.system is not None:
        messages.insert(0, {"role": "system", "content": parameters.system})
    body: dict[str, Any] = {"model": parameters.model, "messages": messages}
    for name in ("temperature", "max_tokens"):
        if getattr(parameters, name) is not None:
            body[name] = getattr(parameters, name)
    if parameters.json_schema is not None:
        form = {"name": "answer", "schema": parameters.json_schema}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    if parameters.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


async def _request_completion(call: NodeCall[Any], request: Request, label: str) -> Completion:
    from rune.nodes.io.http_client.exchange import SendRequest  # noqa: PLC0415

    async with SendRequest(call, request) as response:
        if response.status != 200:
            raise await _status_failure(call, response, label)
        completion = Completion(label)
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream":
            await _read_stream(call, response, completion)
        else:
            encoding = response.headers.get("Content-Encoding", "")
            data = await read_decoded(response.content.iter_any(), encoding, MAX_RESPONSE_BYTES, label)
            completion.add(data)
            if completion.finish_reason is None and not completion.length:
                raise _invalid_response(label, "it is empty")
        return completion


async def _status_failure(call: NodeCall[Any], response: Response, label: str) -> NodeFailure:
    from rune.nodes.io.http_client.exchange import retry_delay  # noqa: PLC0415

    body = await response.content.read(_ERROR_BODY_BYTES)
    details: dict[str, Any] = {
        "status": response.status,
        "body": excerpt(body, response.headers.get("Content-Type", "")),
        **retry_delay(call.now, response.headers.get("Retry-After")),
    }
    code = "LLM_RATE_LIMITED" if response.status == 429 else "LLM_STATUS"
    permanent = is_permanent_status(response.status)
    return NodeFailure(f"{label} returned {response.status}", code=code, details=details, permanent=permanent)


async def _read_stream(call: NodeCall[Any], response: Response, completion: Completion) -> None:
    """Read the events of a streamed completion and publish progress."""
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise _invalid_response(completion.label, "its events are compressed, which was not requested")
    events = Events()
    received = 0
    async for piece in response.content.iter_any():
        received += len(piece)
        if received > MAX_RESPONSE_BYTES:
            raise NodeFailure(
                f"{completion.label}: more than {MAX_RESPONSE_BYTES:,} bytes", code="LLM_TOO_LARGE"
            )
        try:
            found = events.feed(piece)
        except EventTooLongError as error:
            raise NodeFailure(f"{completion.label}: {error}", code="LLM_TOO_LARGE") from None
        done = "[DONE]" in found
        for data in found[: found.index("[DONE]")] if done else found:
            completion.add(data)
        if found:
            call.progress(f"{completion.length:,} characters")
        if done:
            return
    if completion.finish_reason is None:
        raise _invalid_response(completion.label, "it is incomplete")


def _invalid_response(label: str, reason: str) -> NodeFailure:
    return NodeFailure(f"{label}: the response is not valid: {reason}", code="LLM_PROTOCOL")


def _without_fence(text: str) -> str:
    """Return the text inside a Markdown code fence, or the text itself if there is none."""
    fenced = text.strip()
    if not (fenced.startswith(_FENCE) and fenced.endswith(_FENCE)):
        return text
    language, _, rest = fenced.removeprefix(_FENCE).removesuffix(_FENCE).partition("\n")
    inner, line_break, indentation = rest.rpartition("\n")
    if not line_break or indentation.strip():
        return text
    language = language.rstrip()
    return inner if not language or (language.isascii() and language.isalnum()) else text


async def _read_json(call: NodeCall[Any], completion: Completion) -> Any:
    """Parse and check the text: in a thread if it is large or the check takes long."""
    if len(completion.text) <= MAX_DECODED_BYTES:
        try:
            with short_checks():
                return _parse_json(call, completion)
        except NeedsThreadError:
            pass
    return await off_loop_in_turn(partial(_parse_json, call, completion))


def _parse_json(call: NodeCall[Any], completion: Completion) -> Any:
    """Parse the text as JSON and validate it against the schema. A Markdown code fence around it is accepted."""
    text = completion.text
    found = decode_json(
        _without_fence(text).encode("utf-8", "replace"),
        max_bytes=call.limits.output_bytes,
        max_depth=call.limits.json_depth,
    )
    problems = [each.message for each in found.problems[:1]]
    if not problems:
        problems = [
            f"{each.path.removeprefix('input').lstrip('.') or 'the value'}: {each.message}"
            for each in check_value(call.parameters.json_schema, found.value)
        ]
    if not problems:
        return found.value
    cut = " (truncated at the token limit)" if completion.finish_reason == "length" else ""
    raise NodeFailure(
        f"{completion.label}: the completion does not match `json_schema`: {problems[0]}{cut}",
        code="LLM_INVALID_JSON",
        details={"problems": problems[:10], "text": text[:1000], "usage": completion.usage or {}},
    )
