"""The state types of state machines: what each becomes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from rune.documents.importers.asl.paths import (
    Names,
    condition_of,
    expression,
    field_name,
    path_text,
    template,
)
from rune.documents.importers.draft import Status, is_empty, literal, mapping, sequence
from rune.documents.importers.javascript import UntranslatableError
from rune.documents.importers.source import without

if TYPE_CHECKING:
    from rune.documents.importers.asl.machine import MachineImporter

_OBJECTS = "the state fails if the value is neither an object nor a list of objects"
_CODES = "the names of errors are those of Rune"


class End(msgspec.Struct, frozen=True):
    """Where a state ends: the node and outlet from which the next state is reached."""

    node: str
    label: str | None = None
    is_error: bool = False


class Result(msgspec.Struct):
    """The ends of a state that end the machine, and those that lead to another state with the place that says so."""

    ends: list[End] = []
    targets: list[tuple[End, str, str]] = []


class StateReader:
    """Reads one state: adds its nodes in a row and notes what became of each field."""

    def __init__(
        self,
        importer: MachineImporter,
        name: str,
        state: dict[str, Any],
        path: str,
        node_id: str,
        names: Names,
        depth: int,
    ) -> None:
        self.importer = importer
        self.draft = importer.draft
        self.name = name
        self.state = state
        self.path = path
        self.id = node_id
        self.names = names
        self.depth = depth
        self.entry = ""
        self.last = End("")
        self.notes: list[tuple[Status, str, str, str, str]] = []
        self.extra: list[tuple[End, str, str]] = []

    # Notes

    def note(self, status: Status, key: str, target: str, message: str = "", hint: str = "") -> None:
        """Note what became of a field; what its expressions do otherwise makes it approximated."""
        differences = self.differences() if status in ("carried", "approximated") else []
        if differences:
            status, message = "approximated", "; ".join([*([message] if message else []), *differences])
        self.notes.append((status, f"{self.path}.{key}" if key else self.path, target, message, hint))

    def carried(self, key: str, node: str = "", message: str = "") -> None:
        if key in self.state and not is_empty(self.state[key]):
            self.note("carried", key, node or self.id, message)

    def differences(self) -> list[str]:
        """Return what the expressions translated since the last call do otherwise."""
        found = list(dict.fromkeys(self.names.notes))
        self.names.notes.clear()
        return found

    def finish(self) -> None:
        """Report the notes; targets are ids of nodes."""
        record = self.importer.record
        rest = self.differences()
        if rest:
            record.approximated(self.path, self.draft.place(self.main()), "; ".join(rest))
        for status, source, node, message, hint in self.notes:
            record.add(source, status, self.draft.place(node) if node else "", message, hint)
        record.carried(f"{self.path}.Type", self.draft.place(self.main()))
        if "QueryLanguage" in self.state:
            record.carried(f"{self.path}.QueryLanguage", self.draft.place(self.main()))
        if isinstance(self.state.get("Comment"), str):
            self.draft.node(self.main())["notes"] = self.state["Comment"]
            record.carried(f"{self.path}.Comment", f"{self.draft.place(self.main())}.notes")
        if self.name != self.main():
            self.draft.node(self.main())["name"] = self.name

    def main(self) -> str:
        """Return the node that has the name of the state, or the first one."""
        return self.id if self.draft.has(self.id) else self.entry

    # Nodes

    def add(
        self, kind: str, parameters: dict[str, Any] | None = None, *, suffix: str = "", **fields: Any
    ) -> str:
        """Add a node behind the last one of this state."""
        node = self.id if not suffix else self.draft.new_id(f"{self.id}_{suffix}")
        self.draft.add_node(node, kind, parameters, **fields)
        if self.entry:
            self.draft.add_edge(self.last.node, node, self.last.label)
        else:
            self.entry = node
        self.last = End(node)
        return node

    def keep_input(self) -> None:
        """Keep the input of the state under a name, so that it can be read after the work of the state."""
        node = self.add("noop", suffix="input")
        self.names = msgspec.structs.replace(self.names, input=f"${node}")

    def value(self, key: str, names: Names | None = None) -> Any:
        """Return a field as a template and note it."""
        found = template(self.state.get(key), names or self.names)
        self.carried(key)
        return found

    def input_text(self) -> str:
        """Return the expression for the effective input."""
        given = self.state.get("InputPath", "$")
        if given is not None and not isinstance(given, str):
            raise UntranslatableError("`InputPath` is not a path")
        text = "{}" if given is None else path_text(given, self.names)
        self.carried("InputPath")
        return text

    def effective(self) -> Names:
        return msgspec.structs.replace(self.names, input=self.input_text())

    def finish_output(self, result: str) -> None:
        """Add what makes the output of the state from its result: selector, result path, output path."""
        if "Assign" in self.state:
            raise UntranslatableError("variables have no counterpart")
        names = msgspec.structs.replace(self.names, result=result, is_shaped=self._is_shaped(result))
        if self.names.jsonata:
            if "Output" in self.state:
                self._replace(template(self.state["Output"], names), "output")
                self.carried("Output", self.last.node)
            return
        if "ResultSelector" in self.state:
            selected = template(self.state["ResultSelector"], msgspec.structs.replace(names, input=result))
            result = f"${self._replace(selected, 'selected')}"
            self.carried("ResultSelector", self.last.node)
        self._place_result(result)
        self.output_path()

    def _is_shaped(self, result: str) -> bool:
        """Return whether a node builds the result as an object."""
        node = result.removeprefix("$")
        if not self.draft.has(node):
            return False
        return bool(self.draft.node(node).get("parameters", {}).get("mode") == "keep_only")

    def _place_result(self, result: str) -> None:
        where = self.state.get("ResultPath", "$")
        if where is None or (isinstance(where, str) and where != "$"):
            assignments = (
                [{"name": field_name(where), "value": f"{{{{ {result} }}}}"}] if where is not None else []
            )
            self.add("edit", {"from": self._target(assignments), "assignments": assignments}, suffix="result")
        elif where != "$":
            raise UntranslatableError("`ResultPath` is not a path")
        if "ResultPath" in self.state:
            self.note("carried", "ResultPath", self.last.node)

    def _target(self, assignments: list[dict[str, Any]]) -> str:
        """Return what a result is put into: the input, which must be an object if it gets a field."""
        text = f"merge({self.names.input})" if assignments else self.names.input
        if not assignments:
            self.names.notes.append(_OBJECTS)
        return f"{{{{ {text} }}}}"

    def output_path(self) -> None:
        given = self.state.get("OutputPath", "$")
        if given == "$":
            self.carried("OutputPath", self.last.node)
            return
        text = (
            "{}"
            if given is None
            else path_text(str(given), msgspec.structs.replace(self.names, input="$json"))
        )
        self.add("edit", {"from": f"{{{{ {text} }}}}"}, suffix="output")
        self.note("approximated", "OutputPath", self.last.node, _OBJECTS)

    def _replace(self, value: Any, suffix: str) -> str:
        """Add a node whose output is a value."""
        return self.add("edit", {"from": self.whole(value)}, suffix=suffix)

    def whole(self, value: Any) -> Any:
        """Return a template as the whole output of a node, which must be an object or a list of objects."""
        parts = value if isinstance(value, list) else [value]
        dynamic = [isinstance(each, str) and each.startswith("{{ ") for each in parts]
        for each, is_dynamic in zip(parts, dynamic, strict=True):
            if not isinstance(each, dict) and not is_dynamic:
                raise UntranslatableError(
                    "an output that is neither an object nor a list of objects has no counterpart"
                )
        if any(dynamic):
            self.names.notes.append(_OBJECTS)
        return value

    def needs_input(self) -> bool:
        """Return whether the input is read after the work of the state."""
        where = self.state.get("ResultPath", "$")
        caught = [mapping(each).get("ResultPath", "$") for each in sequence(self.state.get("Catch"))]
        return (
            where != "$"
            or any(each != "$" for each in caught)
            or "input" in str(self.state.get("Output", ""))
        )

    def leave(self) -> Result:
        """Return where the state goes on."""
        targets = list(self.extra)
        if isinstance(self.state.get("Next"), str):
            return Result([], [(self.last, self.state["Next"], f"{self.path}.Next"), *targets])
        if self.state.get("End") is not None:
            self.note("carried", "End", self.last.node)
        return Result([self.last], targets)

    # Failures

    def read_retry(self, node: str, codes: Callable[[list[str]], list[str]]) -> None:
        """Read the first retrier; further ones have no counterpart."""
        for at, given in enumerate(map(mapping, sequence(self.state.get("Retry")))):
            if at:
                self.note(
                    "by_hand",
                    f"Retry[{at}]",
                    "",
                    "a node has one policy for retries",
                    "choose one that covers the others",
                )
                continue
            policy: dict[str, Any] = {
                "max_attempts": _number(given.get("MaxAttempts"), 3) + 1,
                "initial_delay": _number(given.get("IntervalSeconds"), 1),
                "backoff": max(1, _number(given.get("BackoffRate"), 2)),
                "jitter": given.get("JitterStrategy") == "FULL",
            }
            if "MaxDelaySeconds" in given:
                policy["max_delay"] = _number(given["MaxDelaySeconds"], 300)
            names = [str(each) for each in sequence(given.get("ErrorEquals"))]
            listed = codes(names)
            if listed:
                policy["on"] = listed
            self.draft.node(node)["retry"] = policy
            for key in given:
                if key == "ErrorEquals" and names != ["States.ALL"]:
                    self.note("approximated", f"Retry[{at}].{key}", node, _CODES)
                elif key == "JitterStrategy" and policy["jitter"]:
                    self.note(
                        "approximated",
                        f"Retry[{at}].{key}",
                        node,
                        "each delay is shortened by at most a half",
                    )
                elif key in (
                    "ErrorEquals",
                    "MaxAttempts",
                    "IntervalSeconds",
                    "BackoffRate",
                    "MaxDelaySeconds",
                    "JitterStrategy",
                ):
                    self.note("carried", f"Retry[{at}].{key}", node)

    def read_catch(self, node: str, codes: Callable[[list[str]], list[str]]) -> None:
        """Lead failures of a node to the states that catch them."""
        catchers = [mapping(each) for each in sequence(self.state.get("Catch"))]
        if not catchers:
            return
        first = [str(each) for each in sequence(catchers[0].get("ErrorEquals"))]
        if len(catchers) == 1 and ("States.ALL" in first or "States.TaskFailed" in first):
            self._catch(End(node, None, True), 0, catchers[0])
            return
        router = self.draft.new_id(f"{self.id}_error")
        rules = []
        for each in catchers:
            names = [str(one) for one in sequence(each.get("ErrorEquals"))]
            every = "States.ALL" in names
            known = ", ".join(f'"{one}"' for one in [*codes(names), *names])
            rules.append(
                {
                    "value": "{{ true }}" if every else f"{{{{ $error.code in [{known}] }}}}",
                    "operator": "==",
                    "compare": True,
                }
            )
        self.draft.add_node(router, "switch", {"rules": rules})
        self.draft.add_edge(node, router, is_error=True)
        for at, each in enumerate(catchers):
            self._catch(End(router, f"case_{at}"), at, each)
        again = self.draft.new_id(f"{self.id}_uncaught")
        self.draft.add_node(again, "fail", {"code": "{{ $error.code }}", "message": "{{ $error.message }}"})
        self.draft.add_edge(router, again, "fallback")

    def _catch(self, end: End, at: int, catcher: dict[str, Any]) -> None:
        node = self.draft.new_id(f"{self.id}_caught")
        caught = [
            {"name": "Error", "value": "{{ $error.code }}"},
            {"name": "Cause", "value": "{{ $error.message }}"},
        ]
        where = catcher.get("ResultPath", "$")
        if where == "$":
            parameters: dict[str, Any] = {"mode": "keep_only", "assignments": caught}
        else:
            name = field_name(where) if isinstance(where, str) else ""
            assignments = [{**each, "name": f"{name}.{each['name']}"} for each in caught] if name else []
            parameters = {"from": self._target(assignments), "assignments": assignments}
        self.draft.add_node(node, "edit", parameters)
        self.draft.add_edge(end.node, node, end.label, is_error=end.is_error)
        for key, value in catcher.items():
            if key == "ErrorEquals":
                self.note("approximated", f"Catch[{at}].{key}", node, _CODES)
            elif key == "Comment":
                self.draft.node(node)["notes"] = value
                self.note("carried", f"Catch[{at}].{key}", node)
            elif key == "ResultPath":
                self.note("carried", f"Catch[{at}].{key}", node)
        if isinstance(catcher.get("Next"), str):
            self.extra.append((End(node), catcher["Next"], f"{self.path}.Catch[{at}].Next"))


def _number(value: Any, default: float) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else default


# States


def _read_pass(reader: StateReader) -> Result:
    state = reader.state
    if "Assign" in state:
        raise UntranslatableError("variables have no counterpart")
    if reader.names.jsonata:
        if "Output" in state:
            value = reader.whole(template(state["Output"], reader.names))
            reader.carried("Output")
            reader.add("edit", {"from": value})
        else:
            reader.add("noop")
        return reader.leave()
    names = reader.effective()
    key = ""
    if "Parameters" in state:
        key, value = "Parameters", template(state["Parameters"], names)
    elif "Result" in state:
        key, value = "Result", literal(state["Result"])
    else:
        value = f"{{{{ {names.input} }}}}"
    where = state.get("ResultPath", "$")
    if where is None or (where == "$" and value == "{{ $json }}"):
        reader.add("noop")
    elif where == "$":
        reader.add("edit", {"from": reader.whole(value)})
    else:
        assignments = [{"name": field_name(str(where)), "value": value}]
        reader.add("edit", {"from": "{{ merge($json) }}", "assignments": assignments})
    if key:
        reader.carried(key)
    if "ResultPath" in state:
        reader.note("carried", "ResultPath", reader.id)
    reader.output_path()
    return reader.leave()


def _read_choice(reader: StateReader) -> Result:
    choices = [mapping(each) for each in sequence(reader.state.get("Choices"))]
    if not choices:
        raise UntranslatableError("the choice has no rules")
    _narrow_input(reader)
    names = reader.names
    rules = []
    for at, each in enumerate(choices):
        text = condition_of(each, names)
        rules.append({"value": f"{{{{ {text} }}}}", "operator": "==", "compare": True})
        differences = reader.differences()
        status: Status = "approximated" if differences else "carried"
        for key in each:
            if key not in ("Next", "Comment", "Assign", "Output"):
                reader.note(status, f"Choices[{at}].{key}", reader.id, "; ".join(differences))
    reader.add("switch", {"rules": rules})
    if reader.state.get("OutputPath", "$") != "$":
        raise UntranslatableError("an output path of a choice has no counterpart")
    reader.carried("OutputPath")
    targets = [
        (End(reader.id, f"case_{at}"), each["Next"], f"{reader.path}.Choices[{at}].Next")
        for at, each in enumerate(choices)
        if isinstance(each.get("Next"), str)
    ]
    if isinstance(reader.state.get("Default"), str):
        return Result(
            [], [*targets, (End(reader.id, "fallback"), reader.state["Default"], f"{reader.path}.Default")]
        )
    unmatched = reader.draft.new_id(f"{reader.id}_unmatched")
    parameters = {"code": "States.NoChoiceMatched", "message": "no rule of the choice matched"}
    reader.draft.add_node(unmatched, "fail", parameters)
    reader.draft.add_edge(reader.id, unmatched, "fallback")
    return Result([], targets)


def _read_wait(reader: StateReader) -> Result:
    _narrow_input(reader)
    state, names = reader.state, reader.names
    if "Seconds" in state:
        parameters = {"amount": reader.value("Seconds")}
    elif "SecondsPath" in state:
        parameters = {"amount": f"{{{{ {expression(str(state['SecondsPath']), names)} }}}}"}
        reader.carried("SecondsPath")
    elif "Timestamp" in state:
        parameters = {"resume": "date_time", "date_time": reader.value("Timestamp")}
    elif "TimestampPath" in state:
        text = expression(str(state["TimestampPath"]), names)
        parameters = {"resume": "date_time", "date_time": f"{{{{ {text} }}}}"}
        reader.carried("TimestampPath")
    else:
        raise UntranslatableError("the state waits for nothing")
    reader.add("wait", parameters)
    reader.finish_output("$json") if reader.names.jsonata else reader.output_path()
    if "Next" not in state and reader.last.node == reader.id:
        reader.add("noop", suffix="output")  # a wait ends with its time, not with its input
    return reader.leave()


def _read_succeed(reader: StateReader) -> Result:
    text = reader.input_text() if not reader.names.jsonata else "$json"
    if text == "$json":
        reader.add("noop")
    else:
        reader.add("edit", {"from": f"{{{{ {text} }}}}"})
        reader.note("approximated", "InputPath", reader.id, _OBJECTS)
    reader.finish_output("$json") if reader.names.jsonata else reader.output_path()
    return Result([reader.last], [])


def _read_fail(reader: StateReader) -> Result:
    state = reader.state
    code = str(state.get("Error") or "States.Failed")
    if reader.names.jsonata and "{%" in code:
        raise UntranslatableError("a code that is an expression has no counterpart")
    parameters: dict[str, Any] = {"code": re.sub(r"[^A-Za-z0-9_.-]", "_", code)[:100] or "FAILED"}
    if "Cause" in state:
        parameters["message"] = reader.value("Cause")
    for key, name in (("CausePath", "message"), ("ErrorPath", "code")):
        if key in state:
            parameters[name] = f"{{{{ {expression(str(state[key]), reader.names)} }}}}"
            reader.carried(key)
    reader.add("fail", parameters)
    if parameters["code"] == code or "ErrorPath" in state:
        reader.carried("Error")
    else:
        reader.note("approximated", "Error", reader.id, f"the code is `{parameters['code']}`")
    return Result([], [])


def _read_parallel(reader: StateReader) -> Result:
    branches = [mapping(each) for each in sequence(reader.state.get("Branches"))]
    if not branches:
        raise UntranslatableError("the state has no branches")
    _refuse_policies(reader, "a group of nodes")
    reader.keep_input()
    _select_input(reader, "Arguments" if reader.names.jsonata else "Parameters")
    fork = reader.last
    machines = [
        reader.importer.machine(each, f"{reader.path}.Branches[{at}]", reader.depth + 1)
        for at, each in enumerate(branches)
    ]
    reader.draft.add_node(reader.id, "merge", {"timeout": 0})
    for machine in machines:
        reader.draft.add_edge(fork.node, machine.entry)
        for end in machine.ends:
            reader.draft.add_edge(end.node, reader.id, end.label, is_error=end.is_error)
    reader.last = End(reader.id)
    reader.finish_output(f"${reader.id}")
    return reader.leave()


def _narrow_input(reader: StateReader) -> None:
    """Add a node that gives the part of the input that is also the output of the state."""
    if reader.names.jsonata or reader.state.get("InputPath", "$") == "$":
        reader.carried("InputPath")
        return
    reader.add("edit", {"from": f"{{{{ {reader.input_text()} }}}}"}, suffix="selected")
    reader.note("approximated", "InputPath", reader.last.node, _OBJECTS)
    reader.state = without(reader.state, ("InputPath",))


def _select_input(reader: StateReader, key: str) -> None:
    if key in reader.state:
        names = reader.names if reader.names.jsonata else reader.effective()
        selected = reader.whole(template(reader.state[key], names))
        reader.add("edit", {"from": selected}, suffix="selected")
        reader.carried(key, reader.last.node)
    elif not reader.names.jsonata and reader.state.get("InputPath", "$") != "$":
        reader.add("edit", {"from": f"{{{{ {reader.input_text()} }}}}"}, suffix="selected")
        reader.note("approximated", "InputPath", reader.last.node, _OBJECTS)


def _refuse_policies(reader: StateReader, what: str) -> None:
    for key in ("Retry", "Catch"):
        if not is_empty(reader.state.get(key)):
            reader.note(
                "by_hand",
                key,
                "",
                f"{what} has no common policy",
                "give its nodes a policy, or make it a workflow of its own",
            )
    reader.state = without(reader.state, ("Retry", "Catch"))


def _read_map(reader: StateReader) -> Result:
    state = reader.state
    for key in (
        "ItemReader",
        "MaxConcurrencyPath",
        "ToleratedFailureCountPath",
        "ToleratedFailurePercentagePath",
    ):
        if key in state:
            raise UntranslatableError(f"`{key}` has no counterpart")
    if "ResultWriter" in state:
        reader.note(
            "by_hand",
            "ResultWriter",
            "",
            "results are not written elsewhere",
            "write them with nodes behind the state",
        )
    if not is_empty(state.get("Retry")):
        reader.note(
            "by_hand", "Retry", "", "a group of nodes has no common policy", "give its nodes a `retry`"
        )
    reader.keep_input()
    split = _split(reader)
    body = mapping(state.get("ItemProcessor") or state.get("Iterator"))
    body_key = "ItemProcessor" if "ItemProcessor" in state else "Iterator"
    if not body:
        raise UntranslatableError("the state has no item processor")
    _select_item(reader, split)
    if not is_empty(body.get("ProcessorConfig")):
        reader.note(
            "carried", f"{body_key}.ProcessorConfig", split, "items always run in scopes of their own"
        )
    begun = len(reader.draft.nodes), len(reader.draft.edges)
    machine = reader.importer.machine(body, f"{reader.path}.{body_key}", reader.depth + 1)
    reader.draft.add_edge(reader.last.node, machine.entry)
    parameters = {"timeout": 0, "tolerate": _tolerated(state)}
    reader.draft.add_node(reader.id, "aggregator", parameters)
    for key in ("ToleratedFailureCount", "ToleratedFailurePercentage"):
        if key in state:
            reader.note(
                "approximated",
                key,
                reader.id,
                "the list has an object with `error` for each item that failed",
            )
    for end in machine.ends:
        reader.draft.add_edge(end.node, reader.id, end.label, is_error=end.is_error)
    _collect_failures(reader, begun)
    if not reader.draft.leads_to(split, reader.id):
        raise UntranslatableError("no item of the map ends")
    reader.last = End(reader.id)
    reader.read_catch(reader.id, lambda names: ["TOO_MANY_FAILURES"])
    reader.finish_output(f"${reader.id}")
    return reader.leave()


def _tolerated(state: dict[str, Any]) -> int | str:
    count, percentage = state.get("ToleratedFailureCount"), state.get("ToleratedFailurePercentage")
    if isinstance(count, int) and count >= 0:
        return count
    if isinstance(percentage, int | float):
        return f"{min(100, max(0, int(percentage)))}%"
    return 0


def _collect_failures(reader: StateReader, begun: tuple[int, int]) -> None:
    """Lead nodes of the body that end an item by a failure to the aggregator, which counts failures that reach it.
    `begun` is how many nodes and edges there were before the body."""
    nodes, edges = begun
    sources = {each["src"] for each in reader.draft.edges[edges:]}
    for each in reader.draft.nodes[nodes:]:
        if each["id"] not in sources and each["id"] != reader.id:
            reader.draft.add_edge(each["id"], reader.id)


def _split(reader: StateReader) -> str:
    state = reader.state
    if reader.names.jsonata:
        items = (
            template(state["Items"], reader.names) if "Items" in state else f"{{{{ {reader.names.input} }}}}"
        )
        reader.carried("Items", reader.entry)
    else:
        names = reader.effective()
        items = f"{{{{ {path_text(str(state.get('ItemsPath', '$')), names)} }}}}"
        reader.carried("ItemsPath", reader.entry)
    parameters: dict[str, Any] = {"input_array": items}
    if isinstance(state.get("MaxConcurrency"), int) and state["MaxConcurrency"] > 0:
        parameters["max_in_flight"] = min(state["MaxConcurrency"], 10_000)
    batch = mapping(state.get("ItemBatcher"))
    if isinstance(batch.get("MaxItemsPerBatch"), int) and batch["MaxItemsPerBatch"] > 0:
        parameters["batch_size"] = batch["MaxItemsPerBatch"]
    split = reader.add("split", parameters, suffix="items")
    reader.carried("MaxConcurrency", split)
    reader.carried("Label", split)
    if "batch_size" in parameters:
        reader.note("carried", "ItemBatcher.MaxItemsPerBatch", split)
    if "MaxInputBytesPerBatch" in batch:
        reader.note(
            "approximated",
            "ItemBatcher.MaxInputBytesPerBatch",
            split,
            "batches are bounded by their number of items",
        )
    return split


def _select_item(reader: StateReader, split: str) -> None:
    """Add what makes the input of an item: the selector, and the batch."""
    state = reader.state
    key = "ItemSelector" if "ItemSelector" in state else "Parameters" if "Parameters" in state else ""
    batch = mapping(state.get("ItemBatcher"))
    if batch:
        if not isinstance(batch.get("MaxItemsPerBatch"), int):
            raise UntranslatableError("batches without a number of items have no counterpart")
        if key:
            raise UntranslatableError("selecting fields of the items of a batch has no counterpart")
        value: dict[str, Any] = {"Items": "{{ $item }}"}
        if "BatchInput" in batch:
            names = reader.names if reader.names.jsonata else reader.effective()
            value["BatchInput"] = template(batch["BatchInput"], names)
            reader.note("carried", "ItemBatcher.BatchInput", split)
        reader.add("edit", {"from": value}, suffix="item")
    elif key:
        names = reader.names if reader.names.jsonata else reader.effective()
        selected = reader.whole(template(state[key], names))
        reader.add("edit", {"from": selected}, suffix="item")
        reader.carried(key, reader.last.node)


_NUMBERS: Mapping[str, tuple[str, ...]] = {
    "": ("MaxConcurrency", "ToleratedFailureCount", "ToleratedFailurePercentage"),
    "ItemBatcher": ("MaxItemsPerBatch", "MaxInputBytesPerBatch"),
    "Retry": ("MaxAttempts", "IntervalSeconds", "BackoffRate", "MaxDelaySeconds"),
}
"""Fields that are numbers here, by the field that holds them; in JSONata they may be expressions."""

_CONSTANT = re.compile(r"\s*\{%\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*%\}\s*")


def _read_numbers(state: dict[str, Any]) -> None:
    """Write expressions that are only a number as that number; refuse others in the place of one."""
    for holder, keys in _NUMBERS.items():
        given = state.get(holder) if holder else state
        for part in map(mapping, given if isinstance(given, list) else [given]):
            for key in keys:
                value = part.get(key)
                constant = _CONSTANT.fullmatch(value) if isinstance(value, str) else None
                if constant is not None:
                    value = part[key] = float(constant[1]) if "." in constant[1] else int(constant[1])
                if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                    raise UntranslatableError(f"`{key}` that is not a number has no counterpart")


def read_state(reader: StateReader) -> Result:
    """Add the nodes of a state and return where it goes on."""
    _read_numbers(reader.state)
    from rune.documents.importers.asl.machine import read_task  # noqa: PLC0415 - tasks need the reader of this module

    kinds: Mapping[str, Callable[[StateReader], Result]] = {
        "Pass": _read_pass,
        "Task": read_task,
        "Choice": _read_choice,
        "Wait": _read_wait,
        "Succeed": _read_succeed,
        "Fail": _read_fail,
        "Parallel": _read_parallel,
        "Map": _read_map,
    }
    kind = reader.state.get("Type")
    if not isinstance(kind, str) or kind not in kinds:
        raise UntranslatableError(f"the state type `{str(kind)[:40]}` has no counterpart")
    return kinds[kind](reader)
