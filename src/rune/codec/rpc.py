"""Remote procedure calls between processes of one machine: requests, replies and their framing.

A frame consists of a version, a length and a msgpack body. The types of arguments and results are read from the
signatures of the class that is called; only methods that are listed by name can be called.
"""

from __future__ import annotations

import inspect
import struct
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Concatenate, ParamSpec, TypeVar, get_type_hints

import msgspec

from rune.codec.decode import MalformedDataError, decode
from rune.core.definition.problems import Problem
from rune.core.execution.fact import ExecutionEnded
from rune.core.limits import LIMITS
from rune.errors import RuneError

P = ParamSpec("P")
R = TypeVar("R")

VERSION = 5
HEADER = struct.Struct(">BI")
MAX_FRAME = LIMITS.payload_bytes + LIMITS.definition_bytes + 1024 * 1024
"""Size limit of a body: the largest payload with the largest definition, and 1 MiB for the rest."""

MAX_VALUE_BYTES = LIMITS.body_bytes
"""Size limit of arguments of which values of any type are built: decoded, they take many times their size."""

_ERROR_FIELD_TYPES: dict[str, Any] = {"problems": tuple[Problem, ...], "end": ExecutionEnded}
"""Types of error attributes that are converted back from plain data."""


class InvalidFrameError(RuneError):
    """Received data is not a frame of this version. The connection can no longer be used."""

    code = "BAD_FRAME"


class FrameTooLargeError(InvalidFrameError):
    """A request or reply exceeds MAX_FRAME."""

    code = "FRAME_TOO_LARGE"

    def __init__(self, size: int) -> None:
        super().__init__(f"a request or reply of {size:,} bytes; at most {MAX_FRAME:,} are allowed")


class InvalidRequestError(RuneError):
    """A request names an unknown method or has arguments that do not match its signature."""

    code = "BAD_REQUEST"


class Request(msgspec.Struct, frozen=True, array_like=True, tag="?"):
    """A method name and its arguments, which are decoded once the method is known."""

    verb: str
    arguments: msgspec.Raw


class Answer(msgspec.Struct, frozen=True, array_like=True, tag="="):
    """The result of a call."""

    value: msgspec.Raw


class ErrorReply(msgspec.Struct, frozen=True, array_like=True, tag="!"):
    """The error that a call raised: its class name, code, message, and other attributes."""

    kind: str
    code: str
    message: str
    details: dict[str, Any] = {}


Reply = Answer | ErrorReply

_ENCODER = msgspec.msgpack.Encoder()
_REQUEST_DECODER = msgspec.msgpack.Decoder(Request)
_REPLY_DECODER: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def frame(message: Request | Reply) -> bytes:
    """Encode a message as a frame."""
    body = _ENCODER.encode(message)
    if len(body) > MAX_FRAME:
        raise FrameTooLargeError(len(body))
    return HEADER.pack(VERSION, len(body)) + body


def body_size(header: bytes) -> int:
    """Return the length of the body that follows a header."""
    version, size = HEADER.unpack(header)
    if version != VERSION:
        raise InvalidFrameError(f"the other process uses protocol version {version}, this one uses {VERSION}")
    if size > MAX_FRAME:
        raise FrameTooLargeError(size)
    return int(size)


def read_request(body: bytes) -> Request:
    try:
        return decode(_REQUEST_DECODER, body)
    except MalformedDataError as error:
        raise InvalidRequestError(f"not a request: {error.message}") from None


def read_reply(body: bytes) -> Reply:
    try:
        return decode(_REPLY_DECODER, body)
    except MalformedDataError as error:
        raise InvalidFrameError(f"not a reply: {error.message}") from None


class RpcMethod:
    """Encodes and decodes the arguments and the result of one method."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        signature = inspect.signature(function, eval_str=True)
        self._signature = signature.replace(parameters=list(signature.parameters.values())[1:])
        self._builds_values = any("Any" in str(each.annotation) for each in signature.parameters.values())
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

    def has_parameter(self, name: str) -> bool:
        return name in self._signature.parameters

    def bind(self, *values: Any, **named: Any) -> dict[str, Any]:
        """Return the arguments of a call by parameter name."""
        return dict(self._signature.bind(*values, **named).arguments)

    def request(self, arguments: dict[str, Any]) -> Request:
        """Encode a call."""
        return Request(self.name, msgspec.Raw(_ENCODER.encode(arguments)))

    def arguments(self, request: Request) -> dict[str, Any]:
        """Decode the arguments of a call to the types that the method declares."""
        size = len(bytes(request.arguments)) if self._builds_values else 0
        if size > MAX_VALUE_BYTES:
            raise InvalidRequestError(
                f"`{self.name}`: arguments of {size:,} bytes; at most {MAX_VALUE_BYTES:,} are allowed"
            )
        try:
            given = decode(self._arguments, request.arguments)
        except MalformedDataError as error:
            raise InvalidRequestError(f"`{self.name}`: {error.message}") from None
        return {name: getattr(given, name) for name in self._signature.parameters}

    def answer(self, value: Any) -> Answer:
        """Encode a result."""
        return Answer(msgspec.Raw(_ENCODER.encode(value)))

    def value(self, reply: Reply) -> Any:
        """Decode a result, or raise the error that the call raised."""
        if isinstance(reply, ErrorReply):
            raise decode_error(reply)
        try:
            return decode(self._answer, reply.value)
        except MalformedDataError as error:
            raise InvalidFrameError(
                f"the result of `{self.name}` has an unexpected type: {error.message}"
            ) from None


Call = Callable[[RpcMethod, dict[str, Any]], Awaitable[Any]]


class RpcMethods:
    """The methods that can be called, named `service.method`. Signatures are read on first use."""

    def __init__(self, services: type, names: Iterable[str]) -> None:
        kinds = get_type_hints(services)
        self._functions: dict[str, Callable[..., Any]] = {}
        for name in names:
            service, _, method = name.partition(".")
            function = getattr(kinds.get(service), method, None)
            if function is not None:
                self._functions[name] = function
        self._methods: dict[str, RpcMethod] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._functions

    def __getitem__(self, name: str) -> RpcMethod:
        found = self._methods.get(name)
        if found is None:
            function = self._functions.get(name)
            if function is None:
                raise InvalidRequestError(f"unknown method `{name[:80]}`")
            found = self._methods[name] = RpcMethod(name, function)
        return found


class ServiceProxy:
    """One service whose methods run in another process. A subclass lists them: `cancel = remote(Service.cancel)`."""

    def __init__(self, name: str, methods: RpcMethods, call: Call) -> None:
        self._name = name
        self._methods = methods
        self._call = call

    async def call_remote(self, name: str, values: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call a method of the other process and return its result."""
        method = self._methods[f"{self._name}.{name}"]
        return await self._call(method, method.bind(*values, **named))


def remote(
    method: Callable[Concatenate[Any, P], Awaitable[R]],
) -> Callable[Concatenate[ServiceProxy, P], Coroutine[Any, Any, R]]:
    """Return a method of a proxy that calls a method of the service with the same name and arguments."""
    name = method.__name__

    async def call(self: ServiceProxy, /, *values: P.args, **named: P.kwargs) -> R:
        result: R = await self.call_remote(name, values, named)
        return result

    call.__name__ = name
    return call


def bound_method(services: Any, name: str) -> Callable[..., Awaitable[Any]]:
    """Return the method that `service.method` names."""
    service, _, method = name.partition(".")
    found: Callable[..., Awaitable[Any]] = getattr(getattr(services, service), method)
    return found


def error_reply(error: RuneError) -> ErrorReply:
    """Encode an error with those of its attributes that are plain data."""
    details: dict[str, Any] = {}
    for name, value in vars(error).items():
        if name not in ("message", "code"):
            try:
                details[name] = msgspec.to_builtins(value)
            except TypeError:
                continue
    return ErrorReply(type(error).__name__, error.code, error.message, details)


def decode_error(reply: ErrorReply) -> RuneError:
    """Decode an error; it has its original class if this process has loaded that class, else RuneError."""
    kind = _error_classes(RuneError).get(reply.kind, RuneError)
    error = kind.__new__(kind, reply.message)
    error.args = (reply.message,)
    error.message = reply.message
    error.code = reply.code
    for name, value in reply.details.items():
        if name.isidentifier() and not hasattr(RuneError, name):
            setattr(error, name, _convert_field(name, value))
    return error


def _convert_field(name: str, value: Any) -> Any:
    wanted = _ERROR_FIELD_TYPES.get(name)
    if wanted is None:
        return value
    try:
        return msgspec.convert(value, wanted)
    except msgspec.ValidationError:
        return value


def _error_classes(base: type[RuneError]) -> dict[str, type[RuneError]]:
    found = {base.__name__: base}
    for each in base.__subclasses__():
        found.update(_error_classes(each))
    return found
