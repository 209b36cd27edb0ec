"""One sample of everything that processes write for others: facts, records, rows, messages, tokens and commands.

python -P tests/support/samples.py write | read     (a JSON object of hexadecimal bytes by name)

The script uses whatever version of `rune` is on its path, so that one version reads what another one wrote. A value is
made from the types of its fields: each field gets a value that depends on its name and type alone, so that two versions
fill the fields that both have alike. What is read is printed as plain data.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, get_args

import msgspec
from msgspec import inspect

from rune.adapters.encryption import Content, PublicFields
from rune.adapters.redis.dead_letters import letter_fields
from rune.adapters.redis.encoding import decode_token, encode_token
from rune.adapters.redis.processes import decode_ended, encode_ended
from rune.codec import facts, messages, rpc
from rune.core.execution.decision import FinishExecution
from rune.core.execution.fact import ExecutionEnded, Fact, NodeResult
from rune.core.execution.outcome import Error
from rune.core.execution.token import Token
from rune.nodes.attempt_log import StoredLog
from rune.ports.access import Limits
from rune.ports.credentials import AnyFields
from rune.ports.journal import ExecutionRecord
from rune.ports.processes import LiveReport, ProcessInfo
from rune.ports.queries import BulkJob, BulkOutcome
from rune.ports.workflows import Trigger


def _imported(name: str, *modules: str) -> Any:
    """Return what a module defines: of the first of these modules that this version has."""
    for module in modules:
        with suppress(ModuleNotFoundError):
            return getattr(importlib.import_module(module), name)
    raise ImportError(f"no module of {modules} exists")


Inline = _imported("Inline", "rune.core.execution.stored_value", "rune.codec.facts")
ScheduleState = _imported("ScheduleState", "rune.core.schedules", "rune.core.triggers")


class Sample(NamedTuple):
    """How a value is written and read."""

    write: Callable[[], bytes]
    read: Callable[[bytes], Any]


def fill(kind: Any, *, minimal: bool = False) -> Any:
    """Return an object of a struct class with all fields set, or with those that have no default."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return _struct(info, minimal=minimal)


def _struct(info: inspect.StructType, *, minimal: bool = False) -> Any:
    values = {
        field.name: _value(field.name, field.type) for field in info.fields if field.required or not minimal
    }
    return info.cls(**values)


def _value(name: str, info: inspect.Type) -> Any:
    match info:
        case inspect.Metadata(type=inner):
            return _value(name, inner)
        case inspect.StructType():
            return _struct(info)
        case inspect.UnionType(types=types):
            return _value(name, next(each for each in types if not isinstance(each, inspect.NoneType)))
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.EnumType(cls=cls):
            return next(iter(cls))
        case inspect.AnyType() | inspect.CustomType():
            return None
    return _container(name, info) or _SCALARS[type(info)](name)


def _container(name: str, info: inspect.Type) -> Any:
    """Return a container with an element of each kind; None for another type."""
    match info:
        case inspect.VarTupleType(item_type=item):
            return (_value(name, item),) * 2
        case inspect.TupleType(item_types=items):
            return tuple(_value(name, each) for each in items)
        case inspect.ListType(item_type=item):
            return [_value(name, item)]
        case inspect.FrozenSetType(item_type=item) | inspect.SetType(item_type=item):
            return frozenset((_value(name, item),))
        case inspect.DictType(key_type=key, value_type=value):
            return {_value("key", key): _value(name, value)}
    return None


_SCALARS: dict[type[inspect.Type], Callable[[str], Any]] = {
    inspect.IntType: lambda name: 5 + len(name) % 5,
    inspect.FloatType: lambda name: 1.5,
    inspect.BoolType: lambda name: True,
    inspect.StrType: str,
    inspect.BytesType: lambda name: b'"' + name.encode() + b'"',
    inspect.RawType: lambda name: msgspec.Raw(b'{"$a":1}'),
}


def plain(value: Any) -> Any:
    """Return what was read as JSON data."""
    return json.loads(msgspec.json.encode(value, enc_hook=str))


def _msgpack(kind: Any) -> dict[str, Sample]:
    return _both(kind, msgspec.msgpack.encode, msgspec.msgpack.Decoder(kind).decode)


def _json(kind: Any) -> dict[str, Sample]:
    return _both(kind, msgspec.json.encode, msgspec.json.Decoder(kind).decode)


def _both(kind: Any, write: Callable[[Any], bytes], read: Callable[[bytes], Any]) -> dict[str, Sample]:
    """Return samples with all fields and with as few as possible."""
    name = kind.__name__
    return {
        name: Sample(lambda: write(fill(kind)), read),
        f"{name}, minimal": Sample(lambda: write(fill(kind, minimal=True)), read),
    }


def _facts() -> dict[str, Sample]:
    found: dict[str, Sample] = {}
    for kind in get_args(Fact):
        found |= _both(kind, facts.encode_fact, facts.decode_fact)
    for kind in get_args(getattr(facts, "StoredValue")):  # noqa: B009 - in versions it is defined elsewhere

        def write(kind: Any = kind) -> bytes:
            return facts.encode_fact(msgspec.structs.replace(fill(NodeResult), value=fill(kind)))

        found[f"NodeResult with {kind.__name__}"] = Sample(write, facts.decode_fact)
    return found


def _token() -> Any:
    return msgspec.structs.replace(fill(Token), path=(3, 5), at=1_700_000_000_000)


def _messages() -> dict[str, Sample]:
    """Messages on RabbitMQ."""

    def hint() -> bytes:
        return messages.encode_hint("x1", _token(), messages.MessageContext("w", "h", tuple("abcdefghij")), 7)

    def execution() -> bytes:
        found = fill(messages.NodeExecutionMessage)
        return messages.encode_message(
            msgspec.structs.replace(
                found, definition=msgspec.UNSET, priority=7, lineage=(_frame(),), token=_token()
            )
        )

    def status() -> Any:
        return msgspec.structs.replace(fill(messages.NodeStatusMessage), lineage=(_frame(),))

    return {
        "hint": Sample(hint, messages.decode_hint),
        "first hint": Sample(lambda: messages.encode_hint("x1", Token(7)), messages.decode_hint),
        "execution message": Sample(execution, messages.decode_execution),
        "status": Sample(lambda: messages.encode_message(status()), messages.decode_status),
        "statuses": Sample(lambda: b"[" + messages.encode_message(status()) + b"]", messages.decode_statuses),
        "completion": Sample(
            lambda: messages.encode_message(fill(messages.CompletionMessage)), messages.decode_completion
        ),
        "sent record": Sample(
            lambda: messages.encode_record(msgspec.structs.replace(_record(), id="x1")),
            lambda data: _with_plain_input(messages.decode_record("x1", data)),
        ),
    }


def _record(*, minimal: bool = False) -> Any:
    """Return a record of the first format, whose input is bytes in versions before stored values."""
    found = fill(ExecutionRecord, minimal=minimal)
    data = b'"input"'
    return msgspec.structs.replace(
        found, format=1, input=data if type(found.input) is bytes else Inline(data)
    )


def _with_plain_input(record: Any) -> Any:
    """Return a record whose input is its bytes, as in versions before stored values."""
    if record is None or type(record.input) is not Inline:
        return record
    return msgspec.structs.replace(record, input=record.input.data)


def _frame() -> Any:
    return messages.Frame("split", 2, "branch", 5)


def _credentials() -> dict[str, Sample]:
    """The decrypted content of credentials, of each type."""
    found = _msgpack(PublicFields)
    for kind in get_args(AnyFields):
        write = lambda kind=kind: msgspec.msgpack.encode(Content("name", fill(kind), ("host",), True))  # noqa: E731
        found[f"Content with {kind.__name__}"] = Sample(write, msgspec.msgpack.Decoder(Content).decode)
    return found


def _redis() -> dict[str, Sample]:
    """Stream entries, notifications and commands in Redis."""

    def ended() -> bytes:
        sent = encode_ended("x1", ExecutionEnded(5, "completed", failed_items=2))
        return sent if isinstance(sent, bytes) else sent.encode()

    def letter() -> bytes:
        return msgspec.msgpack.encode(
            letter_fields("stream", [b"x", b"x1", b"t", encode_token(_token())], "C", "why")
        )

    return {
        "stream token": Sample(lambda: encode_token(_token()), decode_token),
        "first stream token": Sample(lambda: encode_token(Token(7)), decode_token),
        "notification of an end": Sample(ended, lambda data: decode_ended(data.decode())),
        "request for reports": Sample(
            lambda: msgspec.json.encode(["x1", "x2"]), msgspec.json.Decoder(list[str]).decode
        ),
        "dead letter": Sample(letter, msgspec.msgpack.decode),
        **_json(ProcessInfo),
        **_json(LiveReport),
        **_json(FinishExecution),
        **_json(Error),
    }


def _rpc() -> dict[str, Sample]:
    """Calls to the owner of an embedded file."""
    raw = msgspec.Raw(msgspec.msgpack.encode({"execution": "x1"}))

    def request(data: bytes) -> Any:
        found = rpc.read_request(data)
        return found.verb, msgspec.msgpack.decode(found.arguments)

    def answer(data: bytes) -> Any:
        found = rpc.read_reply(data)
        assert isinstance(found, rpc.Answer)
        return msgspec.msgpack.decode(found.value)

    return {
        "request": Sample(lambda: msgspec.msgpack.encode(rpc.Request("journal.facts", raw)), request),
        "answer": Sample(lambda: msgspec.msgpack.encode(rpc.Answer(raw)), answer),
        "error": Sample(
            lambda: msgspec.msgpack.encode(rpc.ErrorReply("RuneError", "C", "why", {"more": 1})),
            rpc.read_reply,
        ),
    }


def _records() -> dict[str, Sample]:
    """Rows of executions."""
    try:
        encode = _imported("encode_record", "rune.codec.records")
        decode = _imported("decode_record", "rune.codec.records")
    except ImportError:  # a version that stores the object as it is
        encode, decode = msgspec.msgpack.encode, msgspec.msgpack.Decoder(ExecutionRecord).decode
    return {
        "ExecutionRecord": Sample(lambda: encode(_record()), lambda data: _with_plain_input(decode(data))),
        "ExecutionRecord, minimal": Sample(
            lambda: encode(_record(minimal=True)), lambda data: _with_plain_input(decode(data))
        ),
    }


def samples() -> dict[str, Sample]:
    """Return all samples by name."""
    return {
        **_facts(),
        **_records(),
        **_msgpack(Trigger),
        **_msgpack(ScheduleState),
        **_msgpack(BulkJob),
        **_msgpack(BulkOutcome),
        **_json(Limits),
        **_json(StoredLog),
        **_credentials(),
        **_messages(),
        **_redis(),
        **_rpc(),
    }


def written() -> dict[str, str]:
    """Return each sample as this version writes it."""
    return {name: sample.write().hex() for name, sample in samples().items()}


def read(given: dict[str, str]) -> dict[str, Any]:
    """Return what this version reads from samples; `{"error": …}` for one that it cannot read."""
    known = samples()
    found: dict[str, Any] = {}
    for name, data in given.items():
        if name not in known:
            found[name] = {"error": "this version has no such value"}
            continue
        try:
            found[name] = plain(known[name].read(bytes.fromhex(data)))
        except Exception as error:
            found[name] = {"error": f"{type(error).__name__}: {error}"}
    return found


def difference(old: Any, new: Any, where: str = "") -> str:
    """Return where data lacks something that the old data has, or differs from it; empty: it only adds named fields."""
    match old, new:
        case dict(), dict():
            lost = sorted(old.keys() - new.keys(), key=str)
            if lost:
                return f"{where}: without {lost}"
            return next(filter(None, (difference(old[key], new[key], f"{where}.{key}") for key in old)), "")
        case list(), list():
            if len(old) != len(new):
                return f"{where}: {len(new)} elements instead of {len(old)}"
            pairs = enumerate(zip(old, new, strict=True))
            return next(filter(None, (difference(*pair, f"{where}[{n}]") for n, pair in pairs)), "")
    return "" if old == new and type(old) is type(new) else f"{where}: {new!r} instead of {old!r}"


if __name__ == "__main__":
    json.dump(written() if sys.argv[1] == "write" else read(json.load(sys.stdin)), sys.stdout, indent=1)
