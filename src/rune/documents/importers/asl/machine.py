"""Import state machines: states become nodes, transitions become edges, tasks become requests, other workflows, or
tasks to implement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rune.core.definition.strict_json import join
from rune.documents.importers.asl.paths import Names, template
from rune.documents.importers.asl.states import End, Result, StateReader, read_state
from rune.documents.importers.draft import (
    Draft,
    Import,
    Recorder,
    Report,
    Status,
    is_empty,
    mapping,
    sequence,
    slug,
)
from rune.documents.importers.javascript import UntranslatableError

MAX_NESTING = 8


def is_asl(source: Any) -> bool:
    return (
        isinstance(source, dict)
        and isinstance(source.get("States"), dict)
        and isinstance(source.get("StartAt"), str)
        and any(isinstance(each, dict) for each in source["States"].values())
    )


def import_asl(source: Any, *, name: str = "", stubs: bool = False) -> Import:
    """Import one state machine. With `stubs`, tasks without a counterpart become custom nodes to implement."""
    return MachineImporter(source, name, stubs).run()


class Machine(msgspec.Struct):
    """A state machine, or a branch or the items of a state: its first node and where it ends."""

    entry: str
    ends: list[End]


class MachineImporter:
    """The state of one import."""

    def __init__(self, source: dict[str, Any], name: str, stubs: bool) -> None:
        self.source = source
        self.record = Recorder(source)
        self.draft = Draft(name or "state-machine", name)
        self.stubs = stubs
        self.types: dict[str, str] = {}  # custom node type -> the resource that it replaces
        self.jsonata = source.get("QueryLanguage") == "JSONata"

    def run(self) -> Import:
        self._read_top()
        start = self.draft.new_id("start")
        self.draft.add_node(start, "input")
        machine = self.machine(self.source, "", 0)
        self.draft.add_edge(start, machine.entry)
        return Import(self.draft.document(), Report("asl", self.record.finish()), self._stub_source())

    def _read_top(self) -> None:
        source = self.source
        if isinstance(source.get("Comment"), str) and source["Comment"]:
            self.draft.notes.append(source["Comment"])
            self.record.carried("Comment", "notes[0]")
        if isinstance(source.get("TimeoutSeconds"), int | float) and source["TimeoutSeconds"] > 0:
            self.draft.settings["timeout"] = source["TimeoutSeconds"]
            self.record.carried("TimeoutSeconds", "settings.timeout")
        kept = {key: source[key] for key in ("Version", "QueryLanguage") if not is_empty(source.get(key))}
        if kept:
            self.draft.metadata["asl"] = kept
        for key in kept:
            self.record.carried(key, f"metadata.asl.{key}")

    def machine(self, definition: dict[str, Any], path: str, depth: int) -> Machine:
        """Import the states of a machine; `path` is its place in the source."""
        if depth > MAX_NESTING:
            raise UntranslatableError(f"machines are nested deeper than {MAX_NESTING} levels")
        return _Graph(self, definition, path, depth).run()

    def _stub_source(self) -> str:
        if not self.types:
            return ""
        lines = [
            '"""Custom nodes to implement: the tasks of an imported state machine."""',
            "",
            "from typing import Any",
            "",
            "from rune import NodeContext, NodeFailure, node",
        ]
        for name, resource in sorted(self.types.items()):
            lines += [
                "",
                "",
                f'@node("{name}", effectful=True)',
                f"async def {slug(name)}(ctx: NodeContext, payload: Any = None) -> Any:",
                f'    """Replaces {resource}."""',
                f'    raise NodeFailure("{name} is not implemented", code="NOT_IMPORTED")',
            ]
        return "\n".join(lines) + "\n"


class _Graph:
    """The states of one machine."""

    def __init__(self, importer: MachineImporter, definition: dict[str, Any], path: str, depth: int) -> None:
        self._importer = importer
        self._path = path
        self._depth = depth
        self._definition = definition
        self._states: dict[str, dict[str, Any]] = {
            name: each for name, each in mapping(definition.get("States")).items() if isinstance(each, dict)
        }
        self._entries: dict[str, str] = {}
        self._ids: dict[str, str] = {}

    def run(self) -> Machine:
        record, first = self._importer.record, str(self._definition.get("StartAt"))
        ends: list[End] = []
        order = self._order(first)
        for name in order:
            self._ids[name] = self._importer.draft.new_id(slug(name, fallback="state"))
        followers: dict[str, list[tuple[End, str, str]]] = {}
        for name in order:
            state_ends, followers[name] = self._import_state(name)
            ends += state_ends
        back = _leading_back({name: [each[1] for each in targets] for name, targets in followers.items()})
        for name, targets in followers.items():
            for end, target, place in targets:
                self._connect(end, target, place, is_back=(name, target) in back)
        entry = self._entries.get(first)
        if entry is None:
            entry = self._importer.draft.new_id(slug(first, fallback="state"))
            self._importer.draft.add_gap(
                entry, f"the state `{first[:60]}` does not exist", {"StartAt": first}
            )
            record.by_hand(join(self._path, "StartAt"), "the first state does not exist", "name a state")
        else:
            record.carried(join(self._path, "StartAt"), self._importer.draft.place(entry))
        for name in self._states:
            if name not in followers:
                self._keep_unreached(name)
        return Machine(entry, ends)

    def _order(self, first: str) -> list[str]:
        """Return the states that can be reached, the first one first."""
        found: dict[str, None] = {}
        waiting = [first]
        while waiting:
            name = waiting.pop()
            if name in found or name not in self._states:
                continue
            found[name] = None
            waiting += reversed(next_states(self._states[name]))
        return list(found)

    def _keep_unreached(self, name: str) -> None:
        kept = self._importer.draft.metadata.setdefault("asl", {}).setdefault("states", {})
        key = join(self._path, name) if self._path else name
        kept[key] = self._states[name]
        place = join(join(self._path, "States"), name)
        self._importer.record.carried(
            place, "metadata.asl.states", "no state leads to this one, so it never runs"
        )

    def _import_state(self, name: str) -> tuple[list[End], list[tuple[End, str, str]]]:
        importer, state = self._importer, self._states[name]
        path = join(join(self._path, "States"), name)
        jsonata = state.get("QueryLanguage", "JSONata" if importer.jsonata else "") == "JSONata"
        node_id = self._ids[name]
        marks = len(importer.draft.nodes), len(importer.draft.edges)
        reader = StateReader(
            importer, name, state, path, node_id, Names(state=name, jsonata=jsonata), self._depth
        )
        try:
            result = read_state(reader)
        except UntranslatableError as error:
            importer.draft.truncate(*marks)
            place = importer.draft.add_gap(
                node_id, error.message, state, name=name if name != node_id else ""
            )
            importer.record.by_hand(
                path, error.message, "replace the state by nodes of Rune, or by a custom node", place
            )
            self._entries[name] = node_id
            targets = [(End(node_id), each, "") for each in next_states(state)[:1]]
            return ([] if targets else [End(node_id)]), targets
        self._entries[name] = reader.entry
        reader.finish()
        return result.ends, result.targets

    def _connect(self, end: End, target: str, place: str, *, is_back: bool) -> None:
        """Add the edge of a transition; one that leads back to an earlier state becomes a gap."""
        draft, record = self._importer.draft, self._importer.record
        entry = self._entries.get(target)
        if entry is None:
            reason = f"the state `{target[:60]}` does not exist"
        elif is_back:
            reason = "a workflow has no loops"
        else:
            edge = draft.add_edge(end.node, entry, end.label, is_error=end.is_error)
            if place:
                record.carried(place, edge)
            return
        gap = draft.new_id(f"{end.node}_next")
        gap_place = draft.add_gap(gap, f"the transition to {target[:60]}: {reason}", {"Next": target})
        draft.add_edge(end.node, gap, end.label, is_error=end.is_error)
        if place:
            hint = "use `split` for lists, `retry` for failures, or a workflow that calls itself"
            record.by_hand(place, reason, hint, gap_place)


def _leading_back(followers: Mapping[str, Sequence[str]]) -> set[tuple[str, str]]:
    """Return the transitions that close a loop: without them no state leads to itself. Each transition is followed
    once, since a document may have thousands."""
    back: set[tuple[str, str]] = set()
    entered: dict[str, bool] = {}  # whether the states behind it are still being followed
    for start in followers:
        if start in entered:
            continue
        entered[start] = True
        way = [(start, iter(followers[start]))]
        while way:
            name, targets = way[-1]
            target = next(targets, None)
            if target is None:
                entered[name] = False
                way.pop()
            elif entered.get(target):
                back.add((name, target))
            elif target in followers and target not in entered:
                entered[target] = True
                way.append((target, iter(followers[target])))
    return back


def next_states(state: dict[str, Any]) -> list[str]:
    """Return the names of the states that a state leads to, in the order of the document."""
    found = [state.get("Next")]
    found += [mapping(each).get("Next") for each in sequence(state.get("Choices"))]
    found += [state.get("Default")]
    found += [mapping(each).get("Next") for each in sequence(state.get("Catch"))]
    return [each for each in found if isinstance(each, str)]


_HTTP_CODES = [
    "HTTP_TIMEOUT", "HTTP_CONNECT", "HTTP_STATUS", "HTTP_TLS", "HTTP_PROTOCOL", "HTTP_BODY", "HTTP_REDIRECT",
    "HTTP_TOO_LARGE",
]  # fmt: skip
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")


def read_task(reader: StateReader) -> Result:
    """Import a task by its resource."""
    resource = reader.state.get("Resource")
    if not isinstance(resource, str):
        raise UntranslatableError("the task has no resource")
    for key in ("TimeoutSecondsPath", "HeartbeatSecondsPath", "Credentials"):
        if key in reader.state:
            raise UntranslatableError(f"`{key}` has no counterpart")
    if reader.needs_input():
        reader.keep_input()
    kind = resource.rpartition(":::")[2] if ":::" in resource else resource
    if kind == "http:invoke":
        result = _http(reader)
    elif kind.startswith("states:startExecution"):
        result = _workflow(reader, kind)
    else:
        result = _custom(reader, resource, kind)
    if not any(source == f"{reader.path}.Resource" for _, source, *_ in reader.notes):
        reader.carried("Resource")
    node = reader.id
    if isinstance(reader.state.get("TimeoutSeconds"), int | float) and reader.state["TimeoutSeconds"] > 0:
        reader.draft.node(node)["timeout"] = reader.state["TimeoutSeconds"]
        reader.carried("TimeoutSeconds")
    if "HeartbeatSeconds" in reader.state:
        reader.note("by_hand", "HeartbeatSeconds", node, "tasks send no heartbeats", "set a timeout")
    reader.finish_output(result)
    return reader.leave()


def _arguments(reader: StateReader) -> dict[str, Any]:
    """Translate the arguments and note those that differ at run time; a task notes the others that it uses."""
    key = "Arguments" if reader.names.jsonata else "Parameters"
    names = reader.names if reader.names.jsonata else reader.effective()
    given = reader.state.get(key)
    if given is not None and not isinstance(given, dict):
        raise UntranslatableError("arguments that are not an object have no counterpart")
    found: dict[str, Any] = {}
    for field, value in mapping(given).items():
        found |= template({field: value}, names)
        if names.notes:
            reader.note("approximated", f"{key}.{field}", reader.id)
    return found


def _noted(reader: StateReader, *names: str) -> None:
    """Note fields of the arguments as carried."""
    key = "Arguments" if reader.names.jsonata else "Parameters"
    for field in mapping(reader.state.get(key)):
        place = f"{reader.path}.{key}.{field}"
        if field.removesuffix(".$") in names and all(source != place for _, source, *_ in reader.notes):
            reader.note("carried", f"{key}.{field}", reader.id)


def _http(reader: StateReader) -> str:
    arguments = _arguments(reader)
    key = "Arguments" if reader.names.jsonata else "Parameters"
    if not isinstance(arguments.get("ApiEndpoint"), str):
        raise UntranslatableError("the request has no endpoint")
    parameters: dict[str, Any] = {
        "url": arguments["ApiEndpoint"],
        "method": arguments.get("Method", "GET"),
        "timeout": 60,
        "raise_on_status": "4xx,5xx",
    }
    if parameters["method"] not in _METHODS:
        raise UntranslatableError("the method of the request is not known")
    for field, name in (("Headers", "headers"), ("QueryParameters", "query"), ("RequestBody", "body")):
        if field in arguments:
            parameters[name] = arguments[field]
    reader.add("http", parameters)
    _noted(reader, "ApiEndpoint", "Method", "Headers", "QueryParameters", "RequestBody")
    connection = mapping(arguments.get("Authentication")).get("ConnectionArn")
    if isinstance(connection, str):
        name = slug(connection.split("connection/")[-1].split("/")[0], fallback="connection")
        reader.draft.node(reader.id)["credentials"] = {"name": name}
        message, hint = (
            "connections have no counterpart; the node names a credential",
            f"create the credential `{name}`",
        )
        reader.note("changed", f"{key}.Authentication", reader.id, message, hint)

    def codes(names: list[str]) -> list[str]:
        found: list[str] = []
        for each in names:
            if each in ("States.ALL", "States.TaskFailed"):
                return _HTTP_CODES
            found.append(
                {"States.Timeout": "HTTP_TIMEOUT", "States.Http.Socket": "HTTP_CONNECT"}.get(
                    each, "HTTP_STATUS"
                )
            )
        return list(dict.fromkeys(found))

    reader.read_retry(reader.id, codes)
    reader.read_catch(reader.id, codes)
    node = reader.id
    fields = (("ResponseBody", "body"), ("Headers", "headers"), ("StatusCode", "status"))
    assignments = [{"name": name, "value": f"{{{{ ${node}.{field} }}}}"} for name, field in fields]
    return f"${reader.add('edit', {'mode': 'keep_only', 'assignments': assignments}, suffix='response')}"


def _workflow(reader: StateReader, kind: str) -> str:
    arguments = _arguments(reader)
    machine = arguments.get("StateMachineArn")
    if not isinstance(machine, str) or "{{" in machine:
        raise UntranslatableError("the state machine to start is not known")
    if kind.endswith(".waitForTaskToken"):
        raise UntranslatableError("starting a state machine with a task token has no counterpart")
    child = slug(machine.rpartition(":")[2], fallback="workflow").replace("_", "-").lower()
    waits = ".sync" in kind
    given = arguments.get("Input", {})
    reader.add("workflow", {"workflow": child, "input": given, **({} if waits else {"wait": False})})
    key = "Arguments" if reader.names.jsonata else "Parameters"
    message, hint = f"the workflow is called by its id `{child}`", f"import it too and deploy it as `{child}`"
    reader.note("changed", f"{key}.StateMachineArn", reader.id, message, hint)
    _noted(reader, "Input")
    reader.read_retry(reader.id, lambda names: [])
    reader.read_catch(reader.id, lambda names: ["CHILD_FAILED"])
    node = reader.id
    if not waits:
        value = f"{{{{ ${node}.execution_id }}}}"
        shaped = [{"name": "ExecutionArn", "value": value}]
    else:
        output = f"{{{{ ${node} }}}}" if kind.endswith(":2") else f"{{{{ json(${node}) }}}}"
        shaped = [{"name": "Output", "value": output}, {"name": "Status", "value": "SUCCEEDED"}]
    return f"${reader.add('edit', {'mode': 'keep_only', 'assignments': shaped}, suffix='response')}"


def _custom(reader: StateReader, resource: str, kind: str) -> str:
    """Import a task that has to be implemented: as a custom node, or as a gap."""
    arguments = _arguments(reader)
    key = "Arguments" if reader.names.jsonata else "Parameters"
    function = arguments.get("FunctionName") if kind.startswith("lambda:invoke") else None
    payload: Any = arguments.get("Payload") if function is not None else arguments
    name = _type_name(resource, kind, function)
    waits = kind.endswith(".waitForTaskToken")
    reason = f"`{name}` has no counterpart"
    hint = f"implement the node type `{name}`"
    if reader.importer.stubs:
        if key not in reader.state:
            payload = f"{{{{ {reader.input_text()} }}}}"
        reader.importer.types[name] = re.sub(r'["\\\n]', " ", resource)[:120]
        reader.add(name, {"payload": payload})
        reader.read_retry(reader.id, lambda names: [each for each in names if not each.startswith("States.")])
        reader.read_catch(reader.id, lambda names: [each for each in names if not each.startswith("States.")])
    else:
        _add_gap(reader, reason)
        reader.read_catch(reader.id, lambda names: [])
        if "Retry" in reader.state:
            reader.note("by_hand", "Retry", reader.id, reason, "give the node that replaces it a `retry`")
        hint = f"replace the node, or import with stubs and {hint}"
    reader.note("by_hand", "Resource", reader.id, reason, hint)
    if key in reader.state:
        status: Status = "carried" if reader.importer.stubs else "by_hand"
        message = "" if reader.importer.stubs else "kept with the original of the node"
        reader.note(status, key, reader.id, message, "" if reader.importer.stubs else hint)
    if not waits:
        wrapped = kind.startswith("lambda:invoke")
        if wrapped and reader.importer.stubs:
            shaped = [
                {"name": "Payload", "value": f"{{{{ ${reader.id} }}}}"},
                {"name": "StatusCode", "value": 200},
            ]
            return f"${reader.add('edit', {'mode': 'keep_only', 'assignments': shaped}, suffix='response')}"
        return f"${reader.id}"
    wait = reader.add("wait", {"resume": "signal", "name": f"{reader.id}_token"}, suffix="token")
    message = "a signal resumes the execution in place of a call with the task token"
    reader.note("changed", "Resource", wait, message, f"send the signal `{reader.id}_token` to the execution")
    return f"${wait}"


def _add_gap(reader: StateReader, reason: str) -> None:
    previous = reader.last if reader.entry else None
    reader.draft.add_gap(reader.id, reason, reader.state)
    if previous is not None:
        reader.draft.add_edge(previous.node, reader.id, previous.label)
    else:
        reader.entry = reader.id
    reader.last = End(reader.id)


def _type_name(resource: str, kind: str, function: Any) -> str:
    """Return the name of the custom node type for a resource."""
    if isinstance(function, str) and "{{" not in function:
        name = function.removesuffix(":$LATEST").rpartition(":function:")[2] or function
        return f"lambda.{slug(name.split(':')[0], fallback='function')}"
    if ":function:" in resource:
        return f"lambda.{slug(resource.rpartition(':function:')[2].split(':')[0], fallback='function')}"
    if ":activity:" in resource:
        return f"activity.{slug(resource.rpartition(':activity:')[2], fallback='activity')}"
    return f"aws.{slug(kind.split('.', maxsplit=1)[0], fallback='task').lower()}"
