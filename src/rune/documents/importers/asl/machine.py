"""Import state machines: states become nodes, transitions become edges.

The payload on the edges out of an imported state is the output of that state, so that `$json` is the input of the next
one, on whatever path it is reached. A state whose input is read after its work is preceded by a `noop` that keeps it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rune.core.definition.strict_json import join
from rune.documents.importers.asl.paths import Names
from rune.documents.importers.asl.states import End, StateReader, read_state
from rune.documents.importers.draft import Draft, mapping, sequence, slug
from rune.documents.importers.javascript import UntranslatableError
from rune.documents.importers.report import Import, Recorder, Report, is_empty

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
        followers: list[tuple[End, str, str]] = []
        for name in order:
            state_ends, targets = self._import_state(name)
            ends += state_ends
            followers += targets
        for end, target, place in followers:
            self._connect(end, target, place)
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
            if name not in order:
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

    def _connect(self, end: End, target: str, place: str) -> None:
        """Add the edge of a transition; one that leads back to an earlier state becomes a gap."""
        draft, record = self._importer.draft, self._importer.record
        entry = self._entries.get(target)
        if entry is None:
            reason = f"the state `{target[:60]}` does not exist"
        elif draft.leads_to(entry, end.node):
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


def next_states(state: dict[str, Any]) -> list[str]:
    """Return the names of the states that a state leads to, in the order of the document."""
    found = [state.get("Next")]
    found += [mapping(each).get("Next") for each in sequence(state.get("Choices"))]
    found += [state.get("Default")]
    found += [mapping(each).get("Next") for each in sequence(state.get("Catch"))]
    return [each for each in found if isinstance(each, str)]
