"""The exchange of an llm_service node: a conversation goes out, an answer comes back, whole or piece by piece."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec
from msgspec.structs import replace

from rune.core import codes
from rune.core.jsontext import decode_json
from rune.errors import NodeFailure
from rune.nodes.base import Call
from rune.nodes.io.address import Target, target
from rune.nodes.io.authorization import authorized
from rune.nodes.io.body import excerpt
from rune.nodes.io.events import Events, TooLong
from rune.nodes.io.request import KEY, Request, key_text
from rune.nodes.io.sending import patience, sent
from rune.nodes.io.transfer import Response
from rune.nodes.io.unpack import unpacked
from rune.nodes.redaction import redacted

MOST = 16 * 1024 * 1024
"""Bytes of an answer, packaging included."""

LONGEST = 4 * 1024 * 1024
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
        if self.length > LONGEST:
            raise NodeFailure(f"{self.label}: more than {LONGEST:,} characters", code="LLM_TOO_LARGE")
        self._pieces.append(text)


async def chat(call: Call[Any]) -> dict[str, Any]:
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
            raise _as_ours(failure) from None
    value = None if call.parameters.json_schema is None else _checked(call, answer)
    return {
        "text": answer.text,
        "json": value,
        "usage": answer.usage or {},
        "finish_reason": answer.finish_reason,
    }


def _as_ours(failure: NodeFailure) -> NodeFailure:
    code = _CODES.get(failure.code)
    return failure if code is None else NodeFailure(failure.message, code=code, details=failure.details)


async def _request(call: Call[Any]) -> Request:
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


async def _where(call: Call[Any]) -> Target:
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


async def _asked(call: Call[Any], request: Request, label: str) -> Answer:
    async with sent(call, request) as response:
        if response.status != 200:
            raise await _refusal(call, response, label)
        answer = Answer(label)
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream":
            await _listen(call, response, answer)
        else:
            encoding = response.headers.get("Content-Encoding", "")
            answer.add(await unpacked(response.content.iter_any(), encoding, MOST, label))
            if answer.finish_reason is None and not answer.length:
                raise _broken(label, "it says nothing")
        return answer


async def _refusal(call: Call[Any], response: Response, label: str) -> NodeFailure:
    body = await response.content.read(_REFUSAL)
    details: dict[str, Any] = {
        "status": response.status,
        "body": excerpt(body, response.headers.get("Content-Type", "")),
        **patience(call.now, response.headers.get("Retry-After")),
    }
    code = "LLM_RATE_LIMITED" if response.status == 429 else "LLM_STATUS"
    return NodeFailure(f"{label} answered {response.status}", code=code, details=details)


async def _listen(call: Call[Any], response: Response, answer: Answer) -> None:
    """Take the pieces of an answer as they come, and say how far it is."""
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise _broken(answer.label, "its events are packed, which was not asked for")
    events = Events()
    received = 0
    async for piece in response.content.iter_any():
        received += len(piece)
        if received > MOST:
            raise NodeFailure(f"{answer.label}: more than {MOST:,} bytes", code="LLM_TOO_LARGE")
        try:
            found = events.feed(piece)
        except TooLong as error:
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


def _checked(call: Call[Any], answer: Answer) -> Any:
    """The text as JSON that fits the schema. Some models fence it in, which is forgiven."""
    from rune.inputschema import check_value  # noqa: PLC0415 - slow to import, and few nodes need it

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
