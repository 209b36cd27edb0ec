"""Requests between processes of one machine: a verb with its arguments goes one way, an answer or a refusal the other.

A frame is a version, a length and a body in msgpack. Which verbs there are, what they take and what they answer is
read from the class that offers them, and nothing else of it can be reached.
"""

from __future__ import annotations

import inspect
import struct
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, get_type_hints

import msgspec

from rune.core.definition.problems import Problem
from rune.core.execution.fact import ExecutionEnded
from rune.core.limits import LIMITS
from rune.errors import RuneError

VERSION = 2
HEADER = struct.Struct(">BI")
MAX_FRAME = LIMITS.payload_bytes + LIMITS.definition_bytes + 1024 * 1024
"""The largest start payload with the largest definition, and room for the rest."""

_TYPED: dict[str, Any] = {"problems": tuple[Problem, ...], "end": ExecutionEnded}
"""What errors carry beside their text and must not arrive as plain data."""


class InvalidFrameError(RuneError):
    """What arrived is no frame of this version. The connection cannot be used any further."""

    code = "BAD_FRAME"


class FrameTooLargeError(InvalidFrameError):
    """More than a request or an answer may hold."""

    code = "FRAME_TOO_LARGE"

    def __init__(self, size: int) -> None:
        super().__init__(f"a request or an answer of {size:,} bytes; at most {MAX_FRAME:,} are allowed")


class InvalidRequestError(RuneError):
    """A verb that does not exist, or arguments that do not fit it."""

    code = "BAD_REQUEST"


class Request(msgspec.Struct, frozen=True, array_like=True, tag="?"):
    """A verb and its arguments, which are read when the verb is known."""

    verb: str
    arguments: msgspec.Raw


class Answer(msgspec.Struct, frozen=True, array_like=True, tag="="):
    """What a verb answered."""

    value: msgspec.Raw


class ErrorReply(msgspec.Struct, frozen=True, array_like=True, tag="!"):
    """The error that a verb raised: its class, code, text, and what else it carries."""

    kind: str
    code: str
    message: str
    details: dict[str, Any] = {}


Reply = Answer | ErrorReply

_ENCODER = msgspec.msgpack.Encoder()
_REQUEST = msgspec.msgpack.Decoder(Request)
_REPLY: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def frame(message: Request | Reply) -> bytes:
    """The bytes of a message, header first."""
    body = _ENCODER.encode(message)
    if len(body) > MAX_FRAME:
        raise FrameTooLargeError(len(body))
    return HEADER.pack(VERSION, len(body)) + body


def body_size(header: bytes) -> int:
    """How many bytes follow a header."""
    version, size = HEADER.unpack(header)
    if version != VERSION:
        raise InvalidFrameError(
            f"the other side speaks version {version} of the protocol, this one {VERSION}"
        )
    if size > MAX_FRAME:
        raise FrameTooLargeError(size)
    return int(size)


def read_request(body: bytes) -> Request:
    """A request from the body of its frame."""
    try:
        return _REQUEST.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequestError(f"not a request: {error}") from None


def read_reply(body: bytes) -> Reply:
    """An answer or a refusal from the body of its frame."""
    try:
        return _REPLY.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidFrameError(f"not an answer: {error}") from None


class RpcMethod:
    """One verb: how its arguments and its answer travel."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        signature = inspect.signature(function, eval_str=True)
        self._signature = signature.replace(parameters=list(signature.parameters.values())[1:])
        fields: list[Any] = []
        for each in self._signature.parameters.values():
            required = each.default is inspect.Parameter.empty
            kind = Any if each.annotation is inspect.Parameter.empty else each.annotation
            fields.append((each.name, kind) if required else (each.name, kind, each.default))
        arguments = msgspec.defstruct(
            name.title().replace(".", ""), fields, kw_only=True, forbid_unknown_fields=True
        )
        self._arguments: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(arguments)
        returned = signature.return_annotation
        self._answer: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
            Any if returned is inspect.Signature.empty else returned
        )

    def takes(self, argument: str) -> bool:
        """Whether the verb has an argument of this name."""
        return argument in self._signature.parameters

    def named(self, *values: Any, **named: Any) -> dict[str, Any]:
        """The arguments of a call, each by its name."""
        return dict(self._signature.bind(*values, **named).arguments)

    def request(self, arguments: dict[str, Any]) -> Request:
        """A call, ready to travel."""
        return Request(self.name, msgspec.Raw(_ENCODER.encode(arguments)))

    def arguments(self, request: Request) -> dict[str, Any]:
        """The arguments of a call that arrived, each of the type that the verb declares."""
        try:
            given = self._arguments.decode(request.arguments)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidRequestError(f"`{self.name}`: {error}") from None
        return {name: getattr(given, name) for name in self._signature.parameters}

    def answer(self, value: Any) -> Answer:
        """What the verb answered, ready to travel."""
        return Answer(msgspec.Raw(_ENCODER.encode(value)))

    def value(self, reply: Reply) -> Any:
        """What was answered; a refusal is raised as the error it was."""
        if isinstance(reply, ErrorReply):
            raise error_of(reply)
        try:
            return self._answer.decode(reply.value)
        except msgspec.DecodeError as error:
            raise InvalidFrameError(f"the answer to `{self.name}` does not fit: {error}") from None


Call = Callable[[RpcMethod, dict[str, Any]], Awaitable[Any]]


class RpcMethods:
    """The verbs that may be called: those named that the class has. Each is read when it is first used."""

    def __init__(self, services: type, names: Iterable[str]) -> None:
        kinds = get_type_hints(services)
        self._functions: dict[str, Callable[..., Any]] = {}
        for name in names:
            service, _, method = name.partition(".")
            function = getattr(kinds.get(service), method, None)
            if function is not None:
                self._functions[name] = function
        self._verbs: dict[str, RpcMethod] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._functions

    def __getitem__(self, name: str) -> RpcMethod:
        found = self._verbs.get(name)
        if found is None:
            function = self._functions.get(name)
            if function is None:
                raise InvalidRequestError(f"there is no verb `{name[:80]}`")
            found = self._verbs[name] = RpcMethod(name, function)
        return found


class ServiceProxy:
    """Stands for one service whose methods run in another process."""

    def __init__(self, name: str, methods: RpcMethods, call: Call) -> None:
        self._name = name
        self._methods = methods
        self._call = call

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        name = f"{self._name}.{method}"
        if name not in self._methods:
            raise AttributeError(method)
        known = self._methods[name]

        async def call(*values: Any, **named: Any) -> Any:
            return await self._call(known, known.named(*values, **named))

        return call


def error_reply(error: RuneError) -> ErrorReply:
    """An error, ready to travel. What it carries goes along as far as it is data."""
    details: dict[str, Any] = {}
    for name, value in vars(error).items():
        if name not in ("message", "code"):
            try:
                details[name] = msgspec.to_builtins(value)
            except TypeError:
                continue
    return ErrorReply(type(error).__name__, error.code, error.message, details)


def error_of(refusal: ErrorReply) -> RuneError:
    """The error that a refusal stands for: of the same class where this process knows it."""
    kind = _kinds(RuneError).get(refusal.kind, RuneError)
    error = kind.__new__(kind, refusal.message)
    error.args = (refusal.message,)
    error.message = refusal.message
    error.code = refusal.code
    for name, value in refusal.details.items():
        if name.isidentifier() and not hasattr(RuneError, name):
            setattr(error, name, _typed(name, value))
    return error


def _typed(name: str, value: Any) -> Any:
    wanted = _TYPED.get(name)
    if wanted is None:
        return value
    try:
        return msgspec.convert(value, wanted)
    except msgspec.ValidationError:
        return value


def _kinds(of: type[RuneError]) -> dict[str, type[RuneError]]:
    found = {of.__name__: of}
    for each in of.__subclasses__():
        found.update(_kinds(each))
    return found
