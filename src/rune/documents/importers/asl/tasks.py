"""Task states: requests, other state machines, and tasks to implement."""

from __future__ import annotations

import re
from typing import Any

from rune.documents.importers.asl.paths import template
from rune.documents.importers.asl.states import End, Result, StateReader
from rune.documents.importers.draft import mapping, slug
from rune.documents.importers.javascript import UntranslatableError
from rune.documents.importers.report import Status

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
    key = "Arguments" if reader.names.jsonata else "Parameters"
    names = reader.names if reader.names.jsonata else reader.effective()
    given = reader.state.get(key)
    found = template(given if given is not None else {}, names)
    return mapping(found)


def _noted(reader: StateReader, *names: str) -> None:
    """Note fields of the arguments as carried."""
    key = "Arguments" if reader.names.jsonata else "Parameters"
    for field in mapping(reader.state.get(key)):
        if field.removesuffix(".$") in names:
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
