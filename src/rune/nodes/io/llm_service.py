"""`llm_service`: a chat completion.

Server-sent events, read piece by piece.

The exchange of an llm_service node: a conversation goes out, an answer comes back, whole or piece by piece.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from rune.core.definition import problems as codes
from rune.core.definition.problems import Problem
from rune.core.definition.strict_json import decode_json
from rune.core.execution.outcome import Outcome, Output
from rune.errors import NodeFailure
from rune.nodes.base import NodeCall
from rune.nodes.credentials import CREDENTIAL_ERRORS
from rune.nodes.io.http_client.auth import authorized
from rune.nodes.io.http_client.client import Response
from rune.nodes.io.http_client.exchange import retry_delay, sent
from rune.nodes.io.http_client.request import KEY, Request, key_text
from rune.nodes.io.http_client.response import excerpt, unpacked
from rune.nodes.io.http_client.ssrf import Target, target
from rune.nodes.redaction import redacted
from rune.nodes.schema import Model, declare, either


class Message(Model, kw_only=True, frozen=True):
    """One turn."""

    role: Annotated[str, Meta(min_length=1, description="`system`, `user` or `assistant`.")]
    content: Annotated[Any, Meta(description="What is said.")]


class Parameters(Model, kw_only=True, frozen=True):
    """The request to the model."""

    base_url: Annotated[
        str | None, Meta(description="Address of an OpenAI-compatible endpoint. Default: the credential's.")
    ] = None
    model: Annotated[str, Meta(min_length=1, description="Name of the model.")]
    prompt: Annotated[str | None, Meta(description="What the user says.")] = None
    messages: Annotated[
        Annotated[list[Message], Meta(min_length=1)] | None,
        Meta(description="A whole conversation, instead of `prompt`."),
    ] = None
    system: Annotated[str | None, Meta(description="Instruction before the conversation.")] = None
    temperature: Annotated[
        Annotated[float, Meta(ge=0, le=2)] | None,
        Meta(description="How freely it answers. Default: the endpoint's."),
    ] = None
    max_tokens: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="Longest answer. Default: the endpoint's.")
    ] = None
    json_schema: Annotated[
        dict[str, Any] | None,
        Meta(description="The answer is asked for, and checked, as JSON of this schema."),
    ] = None
    stream: Annotated[
        bool, Meta(description="Have the answer sent piece by piece, so that whoever looks on sees it grow.")
    ] = True
    timeout: Annotated[float, Meta(gt=0, description="Seconds for the whole answer.")] = 120


_STANDS_ALONE = "`json_schema` is a JSON Schema (draft 2020-12) that stands alone"


def _combined(parameters: Mapping[str, Any]) -> list[Problem]:
    problems = either(parameters, "prompt", "messages", required=True)
    if isinstance(parameters.get("json_schema"), dict):
        from rune.documents.input_schema import check_schema  # noqa: PLC0415 - slow to import, and few nodes need it

        problems += [
            replace(each, path=each.path.replace("inputs", "json_schema", 1), hint=_STANDS_ALONE)
            for each in check_schema(parameters["json_schema"])
        ]
    return problems


TYPE = declare(
    "llm_service",
    Parameters,
    kinds={"json_schema": "literal"},
    extra=_combined,
    summary="Asks a language model.",
    doc="Sends a conversation to `{base_url}/chat/completions` of any OpenAI-compatible endpoint and waits for the "
    "answer. Private addresses are blocked unless allowed. An endpoint that asks for patience is given it by the "
    "node's `retry`.",
    output="`{text, json, usage, finish_reason}`; `json` is null without `json_schema`.",
    errors={
        "LLM_TIMEOUT": "no complete answer in time",
        "LLM_CONNECT": "no connection",
        "LLM_STATUS": "the endpoint refuses the request",
        "LLM_RATE_LIMITED": "the endpoint asks to slow down",
        "LLM_INVALID_JSON": "the answer does not fit `json_schema`",
        "LLM_PROTOCOL": "the answer breaks off, or is not one that such an endpoint gives",
        "LLM_TOO_LARGE": "the answer has more than 16 MiB, or 4 million characters",
        "HTTP_BLOCKED": "the address is not allowed",
        **CREDENTIAL_ERRORS,
        "EXPRESSION_ERROR": "a parameter cannot be evaluated",
    },
    credentials=True,
    effectful=lambda parameters: True,
)


async def run(call: NodeCall[Parameters]) -> Outcome:
    """One conversation, through the connections that all calls of the process share."""

    return Output(await chat(call))


MAX_EVENT_BYTES = 1024 * 1024
"""Bytes that one event may have."""


class EventTooLongError(ValueError):
    """An event that does not end."""


class Events:
    """Takes bytes as they come and gives the data of each event that is complete."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._waiting = 0
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[str]:
        """The data of the events that end in this piece."""
        found: list[str] = []
        for line in self._lines(piece):
            if line:
                self._field(line)
            elif self._data:
                found.append(b"\n".join(self._data).decode("utf-8", "replace"))
                self._data, self._size = [], 0
        return found

    def _lines(self, piece: bytes) -> list[bytes]:
        """The lines that end in this piece. One that does not end is put together only when it does."""
        self._rest.append(piece)
        self._waiting += len(piece)
        if self._waiting > MAX_EVENT_BYTES + len(piece):
            raise EventTooLongError(f"an event has more than {MAX_EVENT_BYTES:,} bytes")
        if b"\n" not in piece and b"\r" not in piece and not self._rest[0].endswith(b"\r"):
            return []
        text = b"".join(self._rest).replace(b"\r\n", b"\n")
        # A carriage return at the end may be half of a line break.
        held = b"\r" if text.endswith(b"\r") else b""
        lines = text.removesuffix(b"\r").replace(b"\r", b"\n").split(b"\n")
        self._rest = [lines.pop() + held]
        self._waiting = len(self._rest[0])
        return lines

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name != b"data":
            return
        self._data.append(value.removeprefix(b" "))
        self._size += len(value)
        if self._size > MAX_EVENT_BYTES:
            raise EventTooLongError(f"an event has more than {MAX_EVENT_BYTES:,} bytes")


MAX_RESPONSE_BYTES = 16 * 1024 * 1024
"""Bytes of an answer, packaging included."""

MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""Characters of the text."""

_REFUSAL = 16 * 1024
_FENCED = re.compile(r"\s*```[A-Za-z0-9]*\s*\n(.*)\n\s*```\s*", re.DOTALL)
_CODES = {
    "HTTP_CONNECT": "LLM_CONNECT",
    "HTTP_TLS": "LLM_CONNECT",
    "HTTP_PROTOCOL": "LLM_PROTOCOL",
    "HTTP_TOO_LARGE": "LLM_TOO_LARGE",
}


class _Part(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Part | None = None
    message: _Part | None = None
    finish_reason: str | None = None
    index: int = 0


class _Chunk(msgspec.Struct):
    """A whole answer, or one piece of it; whatever else endpoints add is let pass."""

    choices: list[_Choice] = []
    usage: dict[str, Any] | None = None
    error: Any = None


class Answer:
    """What was said so far."""

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
        """Take one chunk."""
        try:
            chunk = msgspec.json.decode(data, type=_Chunk)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise _broken(self.label, "it is not what such an endpoint says") from None
        if chunk.error:
            shown = chunk.error.get("message") if isinstance(chunk.error, dict) else chunk.error
            raise NodeFailure(f"{self.label}: {str(shown)[:300]}", code="LLM_STATUS")
        if chunk.usage is not None:
            self.usage = chunk.usage
        for choice in chunk.choices:
            if choice.index == 0:
                part = choice.delta or choice.message
                self._say(part.content if part is not None else None)
                self.finish_reason = choice.finish_reason or self.finish_reason

    def _say(self, text: str | None) -> None:
        if not text:
            return
        self.length += len(text)
        if self.length > MAX_ANSWER_BYTES:
            raise NodeFailure(
                f"{self.label}: more than {MAX_ANSWER_BYTES:,} characters", code="LLM_TOO_LARGE"
            )
        self._pieces.append(text)


async def chat(call: NodeCall[Any]) -> dict[str, Any]:
    """What the node gives back."""
    request = await _request(call)
    label = redacted(request.where.url)
    async with call.world.http().lane(request.where):
        try:
            async with asyncio.timeout(call.parameters.timeout):
                answer = await _asked(call, await authorized(call, request), label)
        except TimeoutError:
            seconds = f"{call.parameters.timeout:g}"
            raise NodeFailure(f"{label}: no complete answer within {seconds} s", code="LLM_TIMEOUT") from None
        except NodeFailure as failure:
            raise _map_error(failure) from None
    value = None if call.parameters.json_schema is None else _checked(call, answer)
    return {
        "text": answer.text,
        "json": value,
        "usage": answer.usage or {},
        "finish_reason": answer.finish_reason,
    }


def _map_error(failure: NodeFailure) -> NodeFailure:
    code = _CODES.get(failure.code)
    return failure if code is None else NodeFailure(failure.message, code=code, details=failure.details)


async def _request(call: NodeCall[Any]) -> Request:
    parameters = call.parameters
    headers = {
        "accept": "text/event-stream, application/json" if parameters.stream else "application/json",
        "accept-encoding": "identity",
        "content-type": "application/json",
        "user-agent": "rune",
    }
    if call.idempotency_key:
        headers[KEY] = key_text(call.idempotency_key)
    return Request("POST", await _where(call), headers, msgspec.json.encode(_asks(parameters)))


async def _where(call: NodeCall[Any]) -> Target:
    base = call.parameters.base_url
    if not base:
        credential = await call.credential()
        base = None if credential is None else getattr(credential.fields, "base_url", None)
    if not base:
        raise NodeFailure(
            "parameters.base_url: neither the node nor its credential names an endpoint",
            code=codes.BAD_PARAMETER,
        )
    found = target(base)
    path, mark, query = found.resource.partition("?")
    return replace(found, resource=f"{path.rstrip('/')}/chat/completions{mark}{query}")


def _asks(parameters: Any) -> dict[str, Any]:
    messages = [msgspec.to_builtins(each) for each in parameters.messages or ()]
    if parameters.prompt is not None:
        messages = [{"role": "user", "content": parameters.prompt}]
    if parameters.system is not None:
        messages.insert(0, {"role": "system", "content": parameters.system})
    asked: dict[str, Any] = {"model": parameters.model, "messages": messages}
    for name in ("temperature", "max_tokens"):
        if getattr(parameters, name) is not None:
            asked[name] = getattr(parameters, name)
    if parameters.json_schema is not None:
        form = {"name": "answer", "schema": parameters.json_schema}
        asked["response_format"] = {"type": "json_schema", "json_schema": form}
    if parameters.stream:
        asked |= {"stream": True, "stream_options": {"include_usage": True}}
    return asked


async def _asked(call: NodeCall[Any], request: Request, label: str) -> Answer:
    async with sent(call, request) as response:
        if response.status != 200:
            raise await _refusal(call, response, label)
        answer = Answer(label)
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream":
            await _listen(call, response, answer)
        else:
            encoding = response.headers.get("Content-Encoding", "")
            answer.add(await unpacked(response.content.iter_any(), encoding, MAX_RESPONSE_BYTES, label))
            if answer.finish_reason is None and not answer.length:
                raise _broken(label, "it says nothing")
        return answer


async def _refusal(call: NodeCall[Any], response: Response, label: str) -> NodeFailure:
    body = await response.content.read(_REFUSAL)
    details: dict[str, Any] = {
        "status": response.status,
        "body": excerpt(body, response.headers.get("Content-Type", "")),
        **retry_delay(call.now, response.headers.get("Retry-After")),
    }
    code = "LLM_RATE_LIMITED" if response.status == 429 else "LLM_STATUS"
    return NodeFailure(f"{label} answered {response.status}", code=code, details=details)


async def _listen(call: NodeCall[Any], response: Response, answer: Answer) -> None:
    """Take the pieces of an answer as they come, and say how far it is."""
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise _broken(answer.label, "its events are packed, which was not asked for")
    events = Events()
    received = 0
    async for piece in response.content.iter_any():
        received += len(piece)
        if received > MAX_RESPONSE_BYTES:
            raise NodeFailure(f"{answer.label}: more than {MAX_RESPONSE_BYTES:,} bytes", code="LLM_TOO_LARGE")
        try:
            found = events.feed(piece)
        except EventTooLongError as error:
            raise NodeFailure(f"{answer.label}: {error}", code="LLM_TOO_LARGE") from None
        done = "[DONE]" in found
        for data in found[: found.index("[DONE]")] if done else found:
            answer.add(data)
        if found:
            call.progress(f"{answer.length:,} characters")
        if done:
            return
    if answer.finish_reason is None:
        raise _broken(answer.label, "it breaks off")


def _broken(label: str, why: str) -> NodeFailure:
    return NodeFailure(f"{label}: the answer is broken: {why}", code="LLM_PROTOCOL")


def _checked(call: NodeCall[Any], answer: Answer) -> Any:
    """The text as JSON that fits the schema. Some models fence it in, which is forgiven."""
    from rune.documents.input_schema import check_value  # noqa: PLC0415 - slow to import, and few nodes need it

    text = answer.text
    fenced = _FENCED.fullmatch(text)
    found = decode_json(
        (fenced[1] if fenced else text).encode("utf-8", "replace"),
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
    cut = " (it was cut off at the longest answer allowed)" if answer.finish_reason == "length" else ""
    raise NodeFailure(
        f"{answer.label}: the answer does not fit `json_schema`: {problems[0]}{cut}",
        code="LLM_INVALID_JSON",
        details={"problems": problems[:10], "text": text[:1000], "usage": answer.usage or {}},
    )
