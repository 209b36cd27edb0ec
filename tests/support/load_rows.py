"""The rows of the load table: what is sent to each route, with the largest and the oddest input that its limits allow.

Routes come from the OpenAPI document: path and query parameters are filled in by name, bodies by their model. A route
with a parameter or body that has no value here has no row, which is an error. Node types come from the catalogue,
importers from their list, messages from the functions that decode them.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from rune.codec import messages
from rune.codec.rpc import MAX_FRAME
from rune.core.limits import LIMITS
from rune.nodes.registry import STANDARD
from rune.server.app import STATIC_FILES, built_interface, document
from rune.server.health import HEALTH
from rune.server.routes.webhooks import METHODS
from rune.server.routing import PREFIX
from tests.support.documents import document as workflow
from tests.support.documents import node
from tests.support.large_executions import WIDE, wide_graph
from tests.support.whole import WHOLE

JSON = "application/json"
COSTLY = frozenset({"limit", "find", "at", "before", "status", "q", "kind", "plan", "count", "by"})
"""Query parameters that are also used in part."""

MAX_PARALLEL = 15 if WHOLE else 5


class Sent(msgspec.Struct, frozen=True):
    """A request, and how often it is sent at the same time. The method `WebSocket` opens one, and sends the body there;
    `CALL` sends the body as a frame to the socket of the owner; `ABANDON` sends a GET and disconnects at once."""

    method: str
    path: str
    body: bytes | None = None
    media: str = JSON
    times: int = 1
    headers: tuple[tuple[str, str], ...] = ()


class Row(msgspec.Struct, frozen=True):
    kind: str
    name: str
    requests: tuple[Sent, ...]


class Loaded(msgspec.Struct, frozen=True):
    """What the server has before the table is run: two ended executions of a workflow, and their size."""

    executions: tuple[str, str]
    hash: str
    items: int
    large: str
    """An execution whose output is large."""

    open: str
    """A running execution with as many items, of which some wait."""


# Routes


def places(loaded: Loaded, path: str, method: str) -> Mapping[str, str]:
    """Values of the path parameters. A request that changes something names what is not there, where it could remove
    what the other rows need."""
    first, second = loaded.executions
    gone = method == "delete" or path.endswith(("/restore", "/limits", "/requeue"))
    ran = path.endswith("/nodes/{node}/input")  # computed from values that only an execution that ran has
    return {
        "workflow": "gone" if gone else "wide",
        "execution": loaded.large if ran else first,
        "other": second,
        "node": "s" if "/splits/" in path else "made" if ran else "fetch",
        "attempt": "1",
        "version": "1",
        "alias": "latest",
        "hash": loaded.hash,
        "key": "out",
        "letter": "d" * 128,
        "message": "m" + "0" * 16,
        "id": "k" + "0" * 16,
        "job": "b" * 20,
        "worker": "w" * 128,
        "type": "http",
        "credential": "c" * 128,
        "trigger": "t" + "0" * 24,
    }


def queries(loaded: Loaded) -> Mapping[str, tuple[str, ...]]:
    """Values of the query parameters; each is asked for by itself."""
    first, _ = loaded.executions
    last = f"s:{loaded.items - 1}"
    return {
        "limit": ("1000",),
        "cursor": (first, str(loaded.items - 1), f"n{loaded.items}", "s0"),
        "status": ("failed", "skipped", "success"),
        "workflow": ("wide",),
        "version": ("1",),
        "failed_items": ("true",),
        "stuck": ("true",),
        "label": ("a=" + "b" * 1_000,),
        "since": ("2000-01-01T00:00:00Z",),
        "until": ("2100-01-01T00:00:00Z",),
        "code": ("BAD_ROW",),
        "principal": ("p" * 200,),
        "parent": (first,),
        "retry_of": (first,),
        "created_after": ("2000-01-01T00:00:00Z",),
        "q": ("x", "zz" * 100),
        "count": ("estimate",),
        "wait": ("0",),
        "pointer": ("", "/0/a", "/9" * 2_000),
        "depth": ("3",),
        "offset": ("0", "100000"),
        "find": ("zz", "a" * 200),
        "after": ("0", str(loaded.items)),
        "before": (str(loaded.items), "1"),
        "view": ("all",),
        "node": ("fetch",),
        "lineage": (last,),
        "item": (last,),
        "kind": ("node.failed", "signal"),
        "at": ("1", str(loaded.items)),
        "by": ("code", "status"),
        "times": ("true",),
        "note": ("n" * 500,),
        "hidden": ("true",),
        "activity": ("true",),
        "direction": ("down",),
        "width": ("1000",),
        "height": ("1000",),
        "plan": ("true",),
        "layout": ("true",),
        "format": ("n8n",),
        "name": ("n" * 200,),
        "stubs": ("true",),
        "outcome": ("failed",),
        "step": ("60", "3600"),
        "actor": ("a" * 100,),
        "action": ("a" * 100,),
        "target": ("t" * 100,),
    }


def _filled(size: int) -> dict[str, bytes]:
    """Bodies of about a size that are odd whatever is expected."""
    return {
        "nested": b'{"zz":' + b"[" * 90 + b"]" * 90 + b"}",
        "lists": b'{"zz":[' + b"[]," * (size // 3 - 8) + b"[]]}",
        "keys": b"{" + b",".join(b'"k%d":0' % at for at in range(size // 14)) + b"}",
        "text": b'{"zz":"' + b"\\u00e9" * (size // 6 - 4) + b'"}',
        "digits": b'{"zz":' + b"9" * (size - 16) + b"}",
        "open": b"[" * size,
    }


def _bodies(loaded: Loaded, size: int) -> Mapping[str, Mapping[str, Any]]:
    """A large body that is taken, by model."""
    first, _ = loaded.executions
    text = "x" * (size - 1_000)
    many = [f"x{at:026d}" for at in range(size // 40)]
    return {
        "StartBody": {"input": {"items": [], "text": text}},
        "AnyStartBody": {"workflow": "wide", "input": {"items": [], "text": text}},
        "CancelBody": {"reason": text},
        "RetryBody": {"items": many},
        "RerunBody": {"from": "fetch", "input": {"text": text}},
        "SignalBody": {"name": "go", "payload": {"text": text}},
        "AliasBody": {"version": 1, "weights": {str(at): 0.001 for at in range(1, size // 20)}},
        "LimitsBody": {"zz": text},
        "HandlersBody": {"on_failure": {"workflow": text}},
        "PreviewBody": {
            "text": "{{ " + "1 + " * 1_800 + "1 }}",
            "execution": first,
            "node": "fetch",
            "lineage": f"s:{loaded.items - 1}",
        },
        "BulkBody": {"action": "cancel", "executions": many},
        "BulkSelection": {"action": "retry", "filter": {"workflow": "wide"}},
        "CredentialBody": {"name": "c", "type": "bearer", "data": {"token": text}, "hosts": ["*"]},
        "RotateBody": {"data": {"token": text}},
        "RotateTriggerBody": {"secret": text},
        "SchedulePreviewBody": {"parameters": {"cron": "* " * (size // 2), "timezone": "/" * 1_000}},
        "GrantBody": {"workflow": text},
        "KeyBody": {"name": text, "role": "viewer"},
        "KeyLimitsBody": {"zz": text},
    }


def _documents() -> Mapping[str, bytes]:
    """Workflow documents of the largest size, and odd ones."""
    nodes = LIMITS.nodes if WHOLE else LIMITS.nodes // 4
    many = [node(f"n{at}", "log", {"message": "{{ $n0 }} " * 90}) for at in range(nodes)]
    return {
        "graph": json.dumps(wide_graph(nodes)).encode(),
        "expressions": json.dumps(workflow(many, *(f"n{at}>n{at + 1}" for at in range(nodes - 1)))).encode(),
        "braces": json.dumps(workflow([node("a", "log", {"message": "{{" * 500_000})])).encode(),
    }


IMPORTED: Mapping[str, Callable[[], Any]] = {
    "canvas": lambda: {
        "nodes": [{"id": "a", "type": "log", "data": {"message": "{{" * 600_000}}],
        "edges": [{"id": str(at), "source": "a", "target": "a"} for at in range(5_000)],
    },
    "n8n": lambda: {
        "nodes": [
            {"name": f"n{at}", "type": "n8n-nodes-base.noOp", "parameters": {"v": "={{ $json.a }}" * 20}}
            for at in range(1_900)
        ],
        "connections": {
            f"n{at}": {"main": [[{"node": f"n{(at + step) % 1_900}", "index": 0} for step in range(1, 6)]]}
            for at in range(1_900)
        },
    },
    "asl": lambda: {
        "StartAt": "Which",
        "States": {
            "Which": {
                "Type": "Choice",
                "Choices": [{"Variable": "$.n", "NumericEquals": at, "Next": "Done"} for at in range(5_000)],
                "Default": "Done",
            },
            "Done": {"Type": "Pass", "End": True},
        },
    },
}
"""A large document of each format."""


def route_rows(loaded: Loaded) -> Iterator[Row]:
    """The row of every operation of the OpenAPI document."""
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            yield Row("route", f"{method.upper()} {path}", tuple(_requests(loaded, path, method, operation)))


def running_rows(loaded: Loaded) -> Iterator[Row]:
    """Rows of routes that replay an execution: the same for one that runs."""
    at = f"/api/v1/executions/{loaded.open}"
    last = f"lineage=s:{loaded.items - 1}"
    for path in (
        "explain",
        "timers",
        "graph",
        f"nodes/rest/input?{last}",
        f"nodes/rest/attempts?{last}",
        "nodes/all/input",
        "splits/s/items",
        "nodes",
        "rollups",
    ):
        yield Row("running", path, (Sent("GET", f"{at}/{path}"), Sent("GET", f"{at}/{path}", times=3)))
    preview = {"text": "{{ $trigger }}", "execution": loaded.open, "node": "rest", "lineage": "s:0"}
    yield Row(
        "running", "preview", (Sent("POST", "/api/v1/expressions/preview", json.dumps(preview).encode()),)
    )


def _requests(loaded: Loaded, path: str, method: str, operation: Mapping[str, Any]) -> Iterator[Sent]:
    parameters = operation.get("parameters", ())
    filled = path
    for each in parameters:
        if each["in"] == "path":
            value = places(loaded, path, method)[each["name"]]
            filled = filled.replace("{" + each["name"] + "}", value)
    verb = method.upper()
    asked = [each["name"] for each in parameters if each["in"] == "query"]
    values = queries(loaded)
    if "requestBody" in operation:
        size = LIMITS.body_bytes - 1_000
        for body in _request_bodies(loaded, path, operation, size):
            yield Sent(verb, filled, body)
        if "plan" in asked:
            yield Sent(verb, f"{filled}?plan=true&layout=true", _documents()["graph"])
        return
    yield Sent(verb, filled)
    if method == "get":
        for name in asked if WHOLE else [each for each in asked if each in COSTLY]:
            for value in values[name] if WHOLE else values[name][:1]:
                times = MAX_PARALLEL if name == "find" else 1
                yield Sent(verb, f"{filled}?{name}={quote(value)}", times=times)
        if "find" in asked and path.endswith("/nodes/{node}/output"):
            large = f"/api/v1/executions/{loaded.large}/nodes/made/output"
            yield Sent(verb, f"{large}?find=zz", times=MAX_PARALLEL)
        if "lineage" in asked:
            yield Sent(verb, f"{filled}?lineage=s:{loaded.items - 1}", times=3)


def _request_bodies(loaded: Loaded, path: str, operation: Mapping[str, Any], size: int) -> Iterator[bytes]:
    filled = list(_filled(size).values())
    at = sum(map(ord, path))  # in part each route gets one of them
    yield from filled if WHOLE else [filled[at % len(filled)]]
    schema = operation["requestBody"]["content"][JSON]["schema"]
    model = schema.get("$ref", "").rpartition("/")[2]
    if model:
        yield json.dumps(_bodies(loaded, size)[model]).encode()
    elif path.endswith("/import"):
        yield from (json.dumps(each()).encode() for each in IMPORTED.values())
    else:
        yield from _documents().values()


def abandoned_rows(loaded: Loaded) -> Iterator[Row]:
    """Rows of requests whose clients disconnect before they are answered, more than a server accepts at a time."""
    paths = ("/healthz", f"{PREFIX}/executions", f"{PREFIX}/executions/{loaded.executions[0]}")
    yield Row("connection", "abandoned", tuple(Sent("ABANDON", each, times=1_000) for each in paths))


def hidden_rows(loaded: Loaded) -> Iterator[Row]:
    """Rows of routes that are not in the OpenAPI document: webhooks, WebSockets, pages and files."""
    sent = tuple(_deliveries())
    for method in METHODS:
        other = Sent(method, "/hooks/load", b"x" * LIMITS.body_bytes, "text/plain")
        yield Row("route", f"{method} /hooks/{{path}}", sent if method == "POST" else (other,))
    yield Row("route", f"WebSocket {PREFIX}/executions/{{execution}}/events", tuple(_sockets(loaded)))
    packed = (("accept-encoding", "gzip"),)
    page = (("accept", "text/html"),)
    interface = built_interface()
    assert interface is not None
    largest = max(interface.assets, key=lambda name: len(interface.assets[name].data))
    paths = {
        "/": ("/", "/workflows/" + "x" * 7_000),
        "/assets/{name}": (f"/assets/{largest}", "/assets/" + "../" * 130, "/assets/" + "%2e" * 2_000),
        **{each: (each,) for each in STATIC_FILES},
        **{each: (each,) for each in (f"{PREFIX}/openapi.json", f"{PREFIX}/log", "/metrics", *HEALTH)},
    }
    for name, asked in paths.items():
        requests = [Sent("GET", each, headers=page, times=MAX_PARALLEL) for each in asked]
        requests += [Sent("GET", each, headers=(*page, *packed), times=MAX_PARALLEL) for each in asked]
        yield Row("route", f"GET {name}", tuple(requests))


def _deliveries() -> Iterator[Sent]:
    size = LIMITS.body_bytes - 1_000
    form = b"a=1&" * (size // 4)
    odd = _filled(size).values()
    yield from (Sent("POST", "/hooks/load", each, times=3) for each in odd)
    yield Sent("POST", "/hooks/load", form, "application/x-www-form-urlencoded", times=3)
    yield Sent("POST", "/hooks/load", b"\xff" * size, "application/octet-stream", times=3)
    yield Sent("POST", "/hooks/load?" + "a=1&" * 2_000, b"{}")
    signed = (("x-rune-signature", "sha256=" + "0" * 64), ("x-rune-timestamp", "1"))
    yield Sent("POST", "/hooks/signed", b"x" * size, times=MAX_PARALLEL, headers=signed)
    for name in ("x-delivery-id", "x-github-delivery"):
        again = ((name, "d" * 255),)
        yield Sent("POST", "/hooks/load", b'{"zz":"' + b"x" * (size - 10) + b'"}', times=3, headers=again)
    yield Sent("POST", "/hooks/answered", b'{"zz":"' + b"x" * (size - 10) + b'"}', times=3)


def _sockets(loaded: Loaded) -> Iterator[Sent]:
    first, _ = loaded.executions
    for execution in (first, loaded.open):
        path = f"{PREFIX}/executions/{execution}/events"
        yield Sent("WebSocket", path, times=MAX_PARALLEL)
        yield Sent("WebSocket", f"{path}?after={loaded.items // 2}", times=3)
        yield Sent("WebSocket", path, b"x" * 4_000)
        yield Sent("WebSocket", path, b"x" * 1_000_000)
    yield Sent("WebSocket", f"{PREFIX}/executions/{'x' * 5_000}/events")


# The socket of the owner


def _calls(loaded: Loaded, size: int) -> Mapping[str, Iterable[Mapping[str, Any]]]:
    """Arguments of the methods of the owner: large, or odd. What is removed is not there."""
    first, _ = loaded.executions
    text = "x" * size
    data = list(_filled(min(4 * size, LIMITS.payload_bytes)).values())
    names = [text[:20]] * (size // 20)
    lists: Any = [[]] * (4 * size)
    labels = {str(at): "v" for at in range(size // 10)}
    definition = _documents()["graph"]
    short: dict[str, Iterable[Mapping[str, Any]]] = {
        "executions.start": [
            *({"workflow": "wide", "which": None, "input": each} for each in data),
            {"workflow": text, "which": text, "input": b"1"},
            {"workflow": "wide", "which": None, "input": b"{}", "options": {"labels": labels}},
            {
                "workflow": "wide",
                "which": None,
                "input": b"{}",
                "options": {"pins": {"outputs": {"fetch": lists}}},
            },
        ],
        "executions.start_definition": [
            *({"definition": each, "input": b"{}"} for each in data),
            {"definition": definition, "input": b"{}"},
        ],
        "executions.signal": [
            *({"execution": loaded.open, "name": "go", "value": each} for each in data),
            {"execution": text, "name": text},
        ],
        "executions.cancel": [{"execution": first, "reason": text}],
        "executions.retry": [{"execution": first, "split": text, "item": text, "code": text}],
        "executions.rerun": [
            *({"execution": first, "node": "fetch", "item": "s:0", "parameters": each} for each in data),
            {"execution": first, "node": text, "definition": definition},
        ],
        "executions.delete_ended": [{"rules": []}],
        "executions.wait_for_end": [{"execution": first}],
        "workflows.deploy": [
            *({"definition": each} for each in data),
            {"definition": definition, "note": text},
        ],
        "workflows.set_alias": [
            {"workflow": "wide", "alias": text, "version": 1},
            {
                "workflow": "wide",
                "alias": "a",
                "version": 1,
                "weights": dict.fromkeys(range(2, size // 20), 0.0),
            },
        ],
        "triggers.enable": [{"reference": text, "enabled": True}],
        "credentials.add": [
            {"name": text, "type": text, "values": {}},
            {"name": "c", "type": "bearer", "values": {"token": text}, "hosts": names},
            {"name": "c", "type": "bearer", "values": {"token": lists}},
        ],
        "credentials.rotate": [{"reference": text, "values": {"token": lists}}],
        "credentials.grant": [{"reference": "c", "whom": names}],
        "credentials.withdraw": [{"reference": "c", "whom": names}],
        "access.create_key": [
            {"id": "k", "digest": b"d" * size, "name": text, "role": "viewer", "scopes": names}
        ],
        "limits.limit_workflow": [{"workflow": text, "limits": {}}],
        "limits.limit_key": [{"id": text, "limits": {}}],
        "bulk.create": [{"action": "cancel", "executions": names, "reason": text, "filter": text}],
        "handlers.set_defaults": [{"on_failure": {"workflow": text}}],
        **{
            f"{service}.{name}": [{"limit": 10**9}]
            for service, name in (("handlers", "failed"), ("dead_letters", "list"), ("dead_messages", "list"))
        },
        "bulk.list": [{"limit": 10**9}],
        "bulk.outcomes": [{"id": text, "limit": 10**9}],
    }
    return short


_BY_NAME: Mapping[str, str] = {
    "executions.pause": "execution",
    "executions.resume": "execution",
    "executions.running": "execution",
    "workflows.archive": "workflow",
    "dead_letters.requeue": "letter",
    "dead_letters.discard": "letter",
    "dead_messages.find": "message",
    "dead_messages.requeue": "message",
    "dead_messages.discard": "message",
    "triggers.list": "workflow",
    "triggers.find": "reference",
    "triggers.rotate": "reference",
    "credentials.remove": "reference",
    "access.revoke_key": "id",
    "bulk.find": "id",
    "bulk.abort": "id",
    "bulk.finish": "id",
    "workers.drain": "worker",
    "workers.resume": "worker",
}
"""Methods of the owner that take a name alone, and its parameter."""

_WITHOUT = ("handlers.defaults", "credentials.reencrypt")


def owner_rows(loaded: Loaded) -> Iterator[Row]:
    """The row of each method that other processes call on the owner, and of frames that are no calls."""
    size = LIMITS.body_bytes if WHOLE else LIMITS.body_bytes // 4
    calls: dict[str, Iterable[Mapping[str, Any]]] = {
        **_calls(loaded, size),
        **{name: [{field: "x" * size}] for name, field in _BY_NAME.items()},
        **{name: [{}] for name in _WITHOUT},
    }
    for name, given in calls.items():
        bodies = [_call(name, each) for each in given]
        bodies.append(_call(name, {"zz": [[]] * (4 * size)}))
        yield Row("call", name, tuple(Sent("CALL", name, each) for each in bodies))
    most = MAX_FRAME if WHOLE else MAX_FRAME // 8
    frames = {
        "nested": b"\x91" * most,
        "lists": b"\xdd" + (most - 5).to_bytes(4, "big") + b"\x90" * (most - 5),
        "call of lists": _call("executions.start", {"input": [[]] * (most // 2)}),
        "bytes": b"\xff" * most,
        "nothing": b"",
    }
    yield Row("call", "no call", tuple(Sent("CALL", name, each, times=3) for name, each in frames.items()))


def _call(name: str, arguments: Mapping[str, Any]) -> bytes:
    return msgspec.msgpack.encode(["?", name, arguments])


# Importers


def importer_rows(formats: tuple[str, ...]) -> Iterator[Row]:
    for each in formats:
        body = json.dumps(IMPORTED[each]()).encode()
        assert len(body) <= LIMITS.definition_bytes, len(body)
        yield Row("importer", each, (Sent("POST", f"/api/v1/workflows/import?format={each}", body),))


# Node types

ITEMS = "{{ $trigger.items }}"
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "manual": {},
    "input": {},
    "webhook": {"path": "load"},
    "schedule": {"cron": "0 0 1 1 *"},
    "conditional": {"expression": "len(json($trigger.items)) > 3 and $trigger.items contains 7"},
    "switch": {"rules": [{"value": ITEMS, "operator": "==", "compare": at} for at in range(200)]},
    "split": {"input_array": "{{ $trigger.items[:2000] }}"},
    "aggregator": {},
    "merge": {},
    "wait": {"amount": 0.001, "unit": "seconds"},
    "edit": {
        "mode": "keep_only",
        "assignments": [{"name": f"a{at}", "value": "{{ json($trigger.items) }}"} for at in range(5)],
    },
    "filter": {"input_array": ITEMS, "expression": "$item.n % 2 == 0 and matches($item.text, '(a|b)*c')"},
    "sort": {"input_array": ITEMS, "rules": [{"field": "text"}, {"field": "n", "direction": "desc"}]},
    "limit": {"input_array": ITEMS, "count": 10_000},
    "datetime": {"operation": "parse", "date": "{{ json($trigger.items) }}", "format": "%Y" * 50},
    "log": {"message": "{{ json($trigger.items) }}"},
    "workflow": {"workflow": "wide", "input": "{{ $trigger }}"},
    "noop": {},
    "fail": {"message": "{{ json($trigger.items) }}"},
    "output": {"value": "{{ $trigger.items }}"},
    "http": {"url": "http://127.0.0.1:9/", "method": "POST", "body": ITEMS},
    "smtp": {
        "from": "a@example.org",
        "to": "b@example.org",
        "subject": "s",
        "body": "{{ json($trigger.items) }}",
    },
    "llm_service": {"prompt": "{{ json($trigger.items) }}"},
}
"""The parameters of each node type with which it reads a list of 10,000 objects."""


def node_rows(items: int) -> Iterator[Row]:
    """The row of every type of the catalogue: an execution that runs it on a large list."""
    given = {"items": [{"n": at, "text": f"row {at % 97} ab"} for at in range(items)]}
    for each in STANDARD:
        name = each.name
        started = {"definition": _definition(name, PARAMETERS[name]), "input": given}
        request = Sent("POST", "/api/v1/executions?wait=20", json.dumps(started).encode())
        yield Row("node type", name, (request,))


def _definition(type: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    tested = node("n", type, dict(parameters))
    start, split = node("in", "input"), node("s", "split", {"input_array": "{{ $trigger.items[:2000] }}"})
    name = f"load-{type}"
    if type in {"manual", "input", "webhook", "schedule"}:
        return workflow([tested, node("out", "output")], "n>out", id=name)
    if type == "aggregator":
        return workflow([start, split, node("each", "noop"), tested], "in>s", "s>each", "each>n", id=name)
    if type == "split":
        gathered = node("all", "aggregator")
        return workflow(
            [start, tested, node("each", "noop"), gathered], "in>n", "n>each", "each>all", id=name
        )
    if type == "merge":
        ways = [node(f"w{at}", "noop") for at in range(40)]
        edges = [f"in>w{at}" for at in range(40)] + [f"w{at}>n" for at in range(40)]
        return workflow([start, *ways, tested], *edges, id=name)
    return workflow([start, tested], "in>n", id=name)


# Messages


def decoders() -> dict[str, Callable[[bytes], object]]:
    """The functions that decode the body of a message, by name."""
    found = inspect.getmembers(messages, inspect.isfunction)
    return {
        name: each
        for name, each in found
        if each.__module__ == messages.__name__
        and next(iter(inspect.signature(each).parameters), "") == "body"
    }


def message_bodies(size: int) -> Mapping[str, bytes]:
    """Odd bodies of a size, and one that looks right until its end."""
    named = b'{"execution_id":"x1","workflow_id":"w","lineage_stack":['
    return {**_filled(size), "frames": named + b"{}," * (size // 3) + b"{}]}"}


LARGE: dict[str, Any] = workflow(
    [
        node("in", "input"),
        node("made", "edit", {"from": {"list": "{{ $trigger.items }}"}}),
        node("out", "output", {"value": "{{ $made }}"}),
    ],
    "in>made",
    "made>out",
    id="large",
)
HOOK: dict[str, Any] = workflow(
    [node("in", "webhook", {"path": "load"}), node("out", "output", {"value": "{{ $trigger }}"})],
    "in>out",
    id="hook",
)
SIGNED: dict[str, Any] = workflow(
    [node("in", "webhook", {"path": "signed", "auth": "hmac"}), node("out", "output")], "in>out", id="signed"
)
ANSWERED: dict[str, Any] = workflow(
    [
        node("in", "webhook", {"path": "answered", "respond": "result"}),
        node("out", "output", {"value": "{{ $trigger }}"}),
    ],
    "in>out",
    id="answered",
)
DEPLOYED = (WIDE, LARGE, HOOK, SIGNED, ANSWERED)
