"""JSON messages on RabbitMQ: hints between workers, and statuses and completions for other systems.

The field names follow an external message format. A hint written by Rune refers to the definition by its hash and
contains the token; a message written by another system contains the definition and the outputs so far, and no token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal

import msgspec

from rune.codec import records
from rune.codec.decode import MalformedDataError, decode
from rune.core.definition.fields import MAX_ID_LENGTH
from rune.core.definition.strict_json import MAX_DECODED_BYTES, json_shape, split_object
from rune.core.execution.token import Path, Token
from rune.core.json_decoder import JsonDecoder
from rune.core.limits import LIMITS
from rune.core.plan.model import Plan
from rune.errors import InvalidDocumentError, LimitExceededError, RuneError
from rune.ports.journal import ExecutionRecord, NewerFormatError

ID = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_ID_LENGTH}}}")
MAX_STARTED_ID_LENGTH = 255
"""The longest id of an execution that an earlier version started from a message; its tokens are still accepted."""
STARTED_ID = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_STARTED_ID_LENGTH}}}")
MAX_PRIORITY = 10
MAX_NUMBER = 2**31 - 1
MAX_TIME_MS = 2**53
MAX_FULL_BYTES = 16 * 1024 * 1024
"""Size limit of a self-contained message: the default limit of RabbitMQ."""
MAX_FOREIGN_BYTES = LIMITS.payload_bytes + LIMITS.definition_bytes + LIMITS.body_bytes
"""Size limit of a message of another program: its outputs, its definition and the rest."""
MAX_TOKEN_BYTES = 2 * 1024 * 1024
_NAMES_END = 1024
"""Where the names of workflow and execution end at the latest in a message that begins with them."""
_FIRST_NAMES = re.compile(
    rb'\s*\{\s*(?:"workflow_id"\s*:\s*"[^"\\]*"\s*,\s*)?"execution_id"\s*:\s*"([A-Za-z0-9_-]+)"'
)
_TOKEN_FIELD = b',"token":'
NO_OUTPUTS = msgspec.Raw(b"{}")
NOTHING = msgspec.Raw(b"null")


class InvalidMessageError(RuneError):
    """A message body is malformed or of another kind than expected."""

    code = "BAD_MESSAGE"


class MessageTooLargeError(RuneError):
    """A self-contained message would exceed the size limit of the broker."""

    code = "MESSAGE_TOO_LARGE"

    def __init__(self, what: str, size: int, most: int) -> None:
        super().__init__(
            f"a message for {what} would have at least {size:,} bytes; at most {most:,} are allowed"
        )


class Frame(msgspec.Struct, frozen=True, omit_defaults=True):
    """One level of a lineage: an item of a split."""

    split_node_id: str
    item_index: int
    branch_id: str = ""
    total_items: int | None = 0  # None: not known yet


class SentToken(Token, frozen=True, omit_defaults=True, gc=False):
    """A token encoded without its default values."""


class NodeExecutionMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request to run a node. Exactly one of `definition` and `definition_ref` is set."""

    workflow_id: str
    execution_id: str
    current_node: str
    definition_ref: str | msgspec.UnsetType = msgspec.UNSET
    definition: msgspec.Raw | msgspec.UnsetType = msgspec.field(
        default=msgspec.UNSET, name="workflow_definition"
    )
    context: msgspec.Raw = msgspec.field(name="accumulated_context")
    # A Go program writes an empty list as null.
    lineage: tuple[Frame, ...] | None = msgspec.field(default=(), name="lineage_stack")
    from_node: str | None = None
    arrived: tuple[str, ...] | None = ()
    attempt: int = 1
    priority: int | None = None
    traceparent: str | None = None
    token: Token | None = None


class _Hint(msgspec.Struct, frozen=True):
    """The fields that a worker needs of a message that Rune wrote."""

    execution_id: str
    token: Token | None = None


class _LargeParts(msgspec.Struct, frozen=True):
    """The fields of a message that may be large."""

    definition: msgspec.Raw = msgspec.field(default=NOTHING, name="workflow_definition")
    context: msgspec.Raw = msgspec.field(default=NO_OUTPUTS, name="accumulated_context")


class _LastField(msgspec.Struct, frozen=True):
    """The last field of a message that Rune wrote."""

    token: Token


class _NamedExecution(msgspec.Struct, frozen=True):
    """The field that names the execution, also of a message whose other fields are malformed."""

    execution_id: str


class ErrorObject(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error. That of an execution names the node run it comes from."""

    message: str
    code: str
    details: dict[str, Any] = {}
    node_id: str | None = None
    node_type: str | None = None
    lineage: list[dict[str, Any]] | None = None
    attempt: int | None = None


Status = Literal["running", "success", "failed", "waiting", "skipped", "cancelled"]


class NodeStatusMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a node run."""

    workflow_id: str
    execution_id: str
    node_id: str
    status: Status
    output: msgspec.Raw = NOTHING
    error: ErrorObject | None = None
    executed_at: str
    duration_ms: int
    lineage: tuple[Frame, ...] = msgspec.field(default=(), name="lineage_stack")
    attempt: int = 1
    details: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    metadata: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class CompletionMessage(msgspec.Struct, frozen=True, kw_only=True):
    """An execution has ended."""

    workflow_id: str
    execution_id: str
    status: Literal["completed", "failed", "halted", "cancelled"]
    final_context: msgspec.Raw
    completed_at: str
    total_duration_ms: int
    failed_items: int = 0
    version: int | msgspec.UnsetType = msgspec.UNSET
    alias: str | msgspec.UnsetType = msgspec.UNSET
    error: ErrorObject | msgspec.UnsetType = msgspec.UNSET


class MessageContext(msgspec.Struct, frozen=True):
    """What messages of an execution contain besides a token: its workflow, the hash of its definition, the ids of its
    nodes; from the plan the predecessors of a node, and the item counts of splits, which `total` returns.

    With `definition` and `context` (JSON), messages are self-contained, for workers without access to the stores.
    """

    workflow: str = ""
    hash: str = ""
    ids: tuple[str, ...] = ()
    definition: bytes | None = None
    context: bytes | None = None
    traceparent: str | None = None
    plan: Plan | None = None
    total: Callable[[int, Path], int] = lambda split, outer: 0
    record: bytes = b""  # the encoded record of the execution, with its first tokens


NO_CONTEXT = MessageContext()

MAX_SENT_RECORD_BYTES = 4_096
"""Longer records are not sent with a token: the worker reads them from the journal."""

_ENCODER = msgspec.json.Encoder()
_EXECUTION_DECODER = JsonDecoder(NodeExecutionMessage)
_HINT_DECODER = JsonDecoder(_Hint)
_NAMED_EXECUTION_DECODER = JsonDecoder(_NamedExecution)
_PARTS_DECODER = JsonDecoder(_LargeParts)
_LAST_FIELD_DECODER = JsonDecoder(_LastField)
_STATUS_DECODER = JsonDecoder(NodeStatusMessage)
_STATUS_BATCH_DECODER = JsonDecoder(list[NodeStatusMessage])
_COMPLETION_DECODER = JsonDecoder(CompletionMessage)
_FIELDS_DECODER = JsonDecoder(dict[str, msgspec.Raw])


def is_first(token: Token, plan: Plan) -> bool:
    """Return whether a token is one of the first of its execution, which a worker most likely does not know yet: its
    node is an entry or the successor of entries, which run where the execution starts."""
    if token.payload.kind != "start" or token.path or token.attempt > 1 or token.resumed:
        return False
    for edge in plan.nodes[token.node].in_edges:  # noqa: SIM110 - `all` takes twice as long
        if plan.src[edge] not in plan.entries:
            return False
    return True


def encode_record(accepted: ExecutionRecord) -> bytes:
    """Return the record of an execution that is sent with its first tokens; nothing if it is long."""
    record = records.encode_record(accepted)
    return record if len(record) <= MAX_SENT_RECORD_BYTES else b""


def decode_record(execution: str, record: bytes) -> ExecutionRecord | None:
    """Return the record that was sent; None if it has to be read from the journal."""
    try:
        accepted = records.decode_record(record)
    except (NewerFormatError, msgspec.DecodeError, ValueError):
        return None
    return accepted if accepted.id == execution else None


def frames(
    execution: str, path: Path, ids: Sequence[str], total: Callable[[int, Path], int] = lambda split, outer: 0
) -> tuple[Frame, ...]:
    """Return the lineage of a path, outermost first. `total` returns the item count of a split in a scope, 0 if it is
    unknown."""
    found: list[Frame] = []
    branch = execution
    for at in range(0, len(path), 2):
        split = _node_id(path[at], ids)
        branch = f"{branch}_{split}_{path[at + 1]}"
        found.append(Frame(split, path[at + 1], branch, total(path[at], path[:at])))
    return tuple(found)


def _node_id(node: int, ids: Sequence[str]) -> str:
    return ids[node] if 0 <= node < len(ids) else str(node)


def encode_hint(execution: str, token: Token, names: MessageContext = NO_CONTEXT, priority: int = 5) -> bytes:
    """Encode the execution message of a token."""
    full = names.definition is not None
    message = NodeExecutionMessage(
        workflow_id=names.workflow,
        execution_id=execution,
        current_node=_node_id(token.node, names.ids),
        definition_ref=msgspec.UNSET if full else names.hash,
        definition=msgspec.Raw(names.definition) if names.definition is not None else msgspec.UNSET,
        context=NO_OUTPUTS if names.context is None else msgspec.Raw(names.context),
        lineage=frames(execution, token.path, names.ids, names.total) if token.path else (),
        from_node=_sender(names, token),
        arrived=_arrived(names, token),
        attempt=token.attempt,
        priority=priority if priority != 5 else None,
        traceparent=names.traceparent,
        token=SentToken(*msgspec.structs.astuple(token)),
    )
    return _ENCODER.encode(message)


def _sender(names: MessageContext, token: Token) -> str | None:
    """Return the predecessor that sent a token; of a join the one that arrived last, of an aggregator without items its
    split. None for an entry."""
    if names.plan is None:
        payload = token.payload
        return _node_id(payload.node, names.ids) if payload.kind == "result" else None
    node = names.plan.nodes[token.node]
    if node.joins_items and token.last < 0:
        return names.ids[node.split_of]
    if not node.in_edges:
        return None
    last = min(max(0, token.last), len(node.in_edges) - 1)
    return names.ids[names.plan.src[node.in_edges[last]]]


def _arrived(names: MessageContext, token: Token) -> tuple[str, ...]:
    """Return the predecessors whose payloads opened a join, in edge order."""
    if names.plan is None or not token.arrived:
        return ()
    return tuple(dict.fromkeys(names.ids[names.plan.src[each.edge]] for each in token.arrived))


def decode_hint(body: bytes) -> tuple[str, Token | None]:
    """Return the execution and the token of a message; no token if another system wrote it. Of a large message only
    both ends are read."""
    if is_large(body):
        return _decode_large_hint(body)
    try:
        found = decode(_HINT_DECODER, body)
    except MalformedDataError as error:
        raise InvalidMessageError(f"not an execution message: {error.message}") from None
    check_hint(found.execution_id, found.token)
    return found.execution_id, found.token


def is_large(body: bytes) -> bool:
    """Return whether decoding a message would keep an event loop from running."""
    return len(body) > MAX_DECODED_BYTES


def _decode_large_hint(body: bytes) -> tuple[str, Token | None]:
    execution = execution_of(body)
    start = body.rfind(_TOKEN_FIELD, max(0, len(body) - MAX_TOKEN_BYTES))
    if execution is None or start < 0:
        return execution or "", None
    try:
        token = decode(_LAST_FIELD_DECODER, b"{" + body[start + 1 :]).token
    except MalformedDataError:
        return execution, None
    check_hint(execution, token)
    return execution, token


def check_hint(execution: str, token: Token | None) -> None:
    """Raise InvalidMessageError if no store can hold the id of the execution, or the position of the token."""
    if not STARTED_ID.fullmatch(execution):
        raise InvalidMessageError(
            f"an execution id consists of 1 to {MAX_ID_LENGTH} letters, digits, - and _"
        )
    if token is None:
        return
    if len(token.path) > 2 * LIMITS.split_depth:
        raise LimitExceededError("levels of the path of a token", LIMITS.split_depth, len(token.path) // 2)
    numbers = (token.node, token.attempt, token.items, *token.path)
    if min(numbers) < 0 or max(numbers) > MAX_NUMBER or not -MAX_TIME_MS < token.at < MAX_TIME_MS:
        raise InvalidMessageError("a number of the token is out of range")


def execution_of(body: bytes) -> str | None:
    """Return the execution that a message names; None if it names none, or the message is no JSON object. Of a large
    message only the beginning is read: one that has the name elsewhere names none."""
    if is_large(body):
        found = _FIRST_NAMES.match(body[:_NAMES_END])
        named = "" if found is None else found[1].decode()
        return named if STARTED_ID.fullmatch(named) else None
    try:
        named = decode(_NAMED_EXECUTION_DECODER, body).execution_id
    except MalformedDataError:
        return None
    return named if STARTED_ID.fullmatch(named) else None


def decode_execution(body: bytes) -> NodeExecutionMessage:
    """Decode and validate a complete execution message. A large one takes a while: meant for a thread."""
    _check_limits(body)
    try:
        found = decode(_EXECUTION_DECODER, body)
        outputs = decode(_FIELDS_DECODER, found.context)
        if not isinstance(found.definition, msgspec.UnsetType):
            decode(_FIELDS_DECODER, found.definition)
    except MalformedDataError as error:
        raise InvalidMessageError(f"not an execution message: {error.message}") from None
    _check_keys("", body)
    _check_keys("accumulated_context", found.context)
    if not isinstance(found.definition, msgspec.UnsetType):
        _check_keys("workflow_definition", found.definition)
    _check_fields(found)
    if isinstance(found.definition, msgspec.UnsetType) == isinstance(found.definition_ref, msgspec.UnsetType):
        raise InvalidMessageError("a message must have either `workflow_definition` or `definition_ref`")
    wrong = [name for name in outputs if not name.startswith("$")]
    if wrong:
        raise InvalidMessageError(f"an output is named `$` and the id of a node, not `{wrong[0][:80]}`")
    return found


def _check_keys(path: str, data: bytes | msgspec.Raw) -> None:
    """Raise InvalidDocumentError if an object of a message has a key twice. The values inside of the context and the
    definition are checked where they are read."""
    _, problems = split_object(bytes(data), path)
    if problems:
        raise InvalidDocumentError(problems)


def _check_limits(body: bytes) -> None:
    """Raise LimitExceededError if a message is too large; no value is built of it."""
    if len(body) > MAX_FOREIGN_BYTES:
        raise LimitExceededError("bytes of a message", MAX_FOREIGN_BYTES, len(body))
    if is_large(body):
        _check_shape(body)
    try:
        parts = decode(_PARTS_DECODER, body)
    except MalformedDataError as error:
        raise InvalidMessageError(f"not an execution message: {error.message}") from None
    definition = len(bytes(parts.definition))
    if definition > LIMITS.definition_bytes:
        raise LimitExceededError("bytes of `workflow_definition`", LIMITS.definition_bytes, definition)
    rest = len(body) - definition - len(bytes(parts.context))
    if rest > LIMITS.body_bytes:
        raise LimitExceededError("bytes of the other fields of a message", LIMITS.body_bytes, rest)
    if not is_large(body):
        _check_shape(body)


def _check_shape(body: bytes) -> None:
    # An output lies two levels deep.
    most = LIMITS.json_depth + 2
    shape = json_shape(body, LIMITS.payload_containers)
    if shape.depth > most:
        raise LimitExceededError("levels of lists and objects in a message", most, shape.depth)
    if shape.containers > LIMITS.payload_containers:
        raise LimitExceededError("lists and objects in a message", LIMITS.payload_containers)


def _check_fields(found: NodeExecutionMessage) -> None:
    for name in (found.workflow_id, found.execution_id):
        if not ID.fullmatch(name):
            raise InvalidMessageError(
                f"`{name[:80]}`: an id consists of 1 to {MAX_ID_LENGTH} letters, digits, - and _"
            )
    if not 0 < len(found.current_node) <= MAX_ID_LENGTH:
        raise InvalidMessageError(f"the id of a node has between 1 and {MAX_ID_LENGTH} characters")
    if found.priority is not None and not 0 <= found.priority <= MAX_PRIORITY:
        raise InvalidMessageError(f"a priority is between 0 and {MAX_PRIORITY}")
    if found.attempt < 1:
        raise InvalidMessageError("attempts are counted from 1")
    for frame in found.lineage or ():
        # A frame may lack the number of items: another producer does not tell it, or it is not known yet.
        total = frame.total_items or 0
        if frame.item_index < 0 or total < 0 or 0 < total <= frame.item_index:
            raise InvalidMessageError(
                "a frame of a lineage has an `item_index` from 0, which is less than its `total_items`"
            )


def encode_message(message: NodeStatusMessage | CompletionMessage | NodeExecutionMessage) -> bytes:
    return _ENCODER.encode(message)


def decode_status(body: bytes) -> NodeStatusMessage:
    try:
        return decode(_STATUS_DECODER, body)
    except MalformedDataError as error:
        raise InvalidMessageError(f"not a status message: {error.message}") from None


def decode_statuses(body: bytes) -> list[NodeStatusMessage]:
    """Decode a status message, or a batch of them."""
    if not body.startswith(b"["):
        return [decode_status(body)]
    try:
        return decode(_STATUS_BATCH_DECODER, body)
    except MalformedDataError as error:
        raise InvalidMessageError(f"not a batch of status messages: {error.message}") from None


def decode_completion(body: bytes) -> CompletionMessage:
    try:
        return decode(_COMPLETION_DECODER, body)
    except MalformedDataError as error:
        raise InvalidMessageError(f"not a completion message: {error.message}") from None


@lru_cache(maxsize=256)
def moment(ms: int) -> str:
    """Format milliseconds since the epoch as ISO 8601 in UTC. Cached, because many messages share a millisecond."""
    second, rest = divmod(ms, 1000)
    return f"{_format_second(second)}.{rest:03d}Z"


@lru_cache(maxsize=64)
def _format_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
