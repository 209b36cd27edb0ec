"""Import n8n exports: the graph of their connections, and what their nodes become.

n8n runs a node for each item of a list. An importer cannot know the data, but it can follow the graph: a `Flow` says
whether a connection carries one item or many, and gives the expression for it. Nodes that work on one item become plain
nodes. Behind many items, the chain of such nodes is put between a `split` and its `aggregator`. Expressions name the
node that made an item (`$Fetch.body.name`), so that they do not depend on what payload leads to a node.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import msgspec

from rune.core.definition.strict_json import join
from rune.core.limits import LIMITS
from rune.documents.importers.draft import Draft, Import, Recorder, Report, is_empty, slug
from rune.documents.importers.javascript import UntranslatableError
from rune.documents.importers.n8n.listed import nodes_read, reads_input
from rune.documents.importers.n8n.nodes import read_step
from rune.documents.importers.n8n.reader import LIST_TYPES, TRIGGER_TYPES, Flow, Output, StepReader, read_pins
from rune.errors import LimitExceededError

# Beyond this number of steps the search for exclusive branches gives up, and branches count as not exclusive.
_MAX_STEPS = 200_000

_MAX_LOOPS = 200
"""Loops of one document. The nodes behind each are searched."""


class Link(msgspec.Struct, frozen=True):
    """One connection: from an output of a node to an input of another."""

    src: str
    output: int
    dst: str
    input: int
    path: str


class Links:
    """The connections by source and by target."""

    def __init__(self, links: Iterable[Link] = ()) -> None:
        self.all = list(links)
        self._out: dict[str, list[Link]] = {}
        self._into: dict[str, list[Link]] = {}
        for link in self.all:
            self._out.setdefault(link.src, []).append(link)
            self._into.setdefault(link.dst, []).append(link)
        self._ways: dict[str, tuple[set[str], list[tuple[Link, set[str]]]]] = {}
        self._steps = 0

    def out(self, name: str) -> list[Link]:
        return self._out.get(name, [])

    def into(self, name: str) -> list[Link]:
        return self._into.get(name, [])

    def reachable(self, start: Iterable[str], without: str = "") -> set[str]:
        """Return the nodes that a path leads to, without those behind one node."""
        found: set[str] = set()
        waiting = [each for each in start if each != without]
        while waiting:
            each = waiting.pop()
            if each not in found:
                found.add(each)
                self._steps += 1
                waiting += [link.dst for link in self.out(each) if link.dst != without]
        return found

    def exclusive(self, links: list[Link], routers: list[str], triggers: list[str]) -> bool:
        """Return whether at most one of the links carries items: different triggers, or branches of one router."""
        if all(each.src in triggers for each in links):
            return True
        return all(
            any(self._apart(one, other, router, triggers) for router in routers)
            for at, one in enumerate(links)
            for other in links[at + 1 :]
        )

    def _apart(self, one: Link, other: Link, router: str, triggers: list[str]) -> bool:
        """Return whether two links are only reached by different outputs of a router."""
        if self._steps > _MAX_STEPS:
            return False
        if router not in self._ways:
            behind = [(link, self.reachable([link.dst], router)) for link in self.out(router)]
            self._ways[router] = (self.reachable(triggers, router), behind)
        around, behind = self._ways[router]
        ways: list[set[int]] = []
        for link in (one, other):
            self._steps += 1 + len(behind)
            reached = {each.output for each, found in behind if each is link or link.src in found}
            ways.append(set() if link.src in around else reached)
        return bool(ways[0] and ways[1] and not ways[0] & ways[1])


PREFIX = "n8n-nodes-base."
_LOOP = "splitInBatches"
_RESPOND = "respondToWebhook"
_ROUTERS = ("if", "switch", "filter")
_TOP = (
    "id",
    "versionId",
    "meta",
    "tags",
    "createdAt",
    "updatedAt",
    "description",
    "triggerCount",
    "isArchived",
)
_KEPT = ("id", "typeVersion", "webhookId", "color", "notesInFlow")
_STORAGE = (
    "saveDataErrorExecution",
    "saveDataSuccessExecution",
    "saveManualExecutions",
    "saveExecutionProgress",
)
_PER_ITEM = (
    "n8n runs each of these nodes for all items before the next one; here each item passes through them by itself, and "
    "items run at the same time"
)
_PARALLEL = "n8n runs these branches one after the other; here they run at the same time"
_MAX_TEXT = 2_000
_TWICE = (
    "n8n runs this node once for each branch that arrives; here it runs once, when all have arrived, with what the "
    "first of them carries"
)


def is_n8n(source: Any) -> bool:
    return (
        isinstance(source, dict)
        and isinstance(source.get("nodes"), list)
        and isinstance(source.get("connections"), dict)
        and all(isinstance(each, dict) and "parameters" in each for each in source["nodes"])
    )


def import_n8n(source: Any, *, name: str = "") -> Import:
    """Import one exported workflow."""
    return N8nImporter(source, name).run()


class Region(msgspec.Struct):
    """Nodes that run once per item, between a `split` and an `aggregator`."""

    members: set[str]
    split: str
    aggregator: str
    items: str  # the expression of the list
    parent: Region | None
    is_loop: bool = False
    batch: int = 1  # how many items n8n passes through a loop at once
    flow: Flow | None = None  # of the collected list, once it is known
    leaves_at_once: bool | None = None  # once it is known


class N8nImporter:
    """The state of one import: nodes by name, their connections, flows and regions."""

    def __init__(self, source: dict[str, Any], name: str) -> None:
        self.source = source
        self.record = Recorder(source)
        title = source["name"] if isinstance(source.get("name"), str) and source["name"] else name
        self.title = title
        self.draft = Draft(title or "workflow", title)
        self.nodes: dict[str, dict[str, Any]] = {}
        self.paths: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        self.entries: dict[str, str] = {}  # name -> id of the node that in-edges lead to
        self.outputs: dict[str, list[Output]] = {}
        self.regions: dict[str, Region] = {}
        self.links = Links()
        self.loops: dict[str, tuple[Region, int]] = {}  # the body of a loop, and the output that leads to it
        self.results: dict[str, Region] = {}  # regions by the expression of their collected results
        self._gaps: list[tuple[Link, str]] = []  # connections back to an earlier node, and what replaces them
        self._edges: dict[tuple[str, str, str | None, bool], str] = {}
        self._error_edges: dict[str, dict[str, Any]] = {}
        self._relays: set[str] = set()
        self._passed: dict[
            str, tuple[str, Flow]
        ] = {}  # by path of a link: the node that keeps what it carries
        self._joint: dict[tuple[str, int], bool] = {}  # inputs at which several links arrive that carry items
        self._beside: Counter[tuple[str, int]] = Counter()  # links by output
        self._arriving: dict[str, int] = {}  # links by target, without those back to a loop
        self._inner: set[str] = set()  # sub-nodes, which are connected to their node by another type
        self.timezone = ""

    def run(self) -> Import:
        self._read_top()
        self._read_nodes()
        self._set_aside(self._read_connections())
        for name in self._order():
            self._import_node(name)
        for region in {id(each): each for each in self.regions.values()}.values():
            self.collected(region)
        for link in self.links.all:
            self._connect(link)
        for link, gap in self._gaps:
            out = self.outputs[link.src][min(link.output, len(self.outputs[link.src]) - 1)]
            self.draft.add_edge(out.node, gap, out.label)
        test = read_pins(self)
        return Import(self.draft.document(), Report("n8n", self.record.finish()), test=test)

    # The document

    def _read_top(self) -> None:
        source = self.source
        kept = {key: source[key] for key in _TOP if not is_empty(source.get(key))}
        if kept:
            self.draft.metadata["n8n"] = kept
        for key in kept:
            self.record.carried(key, f"metadata.n8n.{key}")
        if isinstance(source.get("name"), str):
            self.record.carried("name", "name" if source["name"] else "")
        if source.get("active"):
            self.record.changed(
                "active", "", "importing activates nothing", "deploy the workflow to start its triggers"
            )
        elif "active" in source:
            self.record.carried("active", "", "the workflow is not active until it is deployed")
        settings = source.get("settings")
        for key, value in (settings if isinstance(settings, dict) else {}).items():
            self._read_setting(key, value)

    def _read_setting(self, key: str, value: Any) -> None:
        path = f"settings.{key}"
        if key == "timezone" and isinstance(value, str):
            self.timezone = value
            self.draft.metadata.setdefault("n8n", {})["timezone"] = value
            self.record.carried(path, "metadata.n8n.timezone", "used by the schedules of this workflow")
        elif key == "executionTimeout" and isinstance(value, int | float) and value > 0:
            self.draft.settings["timeout"] = value
            self.record.carried(path, "settings.timeout")
        elif key in ("executionTimeout", "executionOrder"):
            self.record.carried(
                path, "", "no timeout" if key == "executionTimeout" else "see the connections"
            )
        elif key in _STORAGE:
            self.record.changed(
                path,
                "",
                "every execution is recorded",
                "choose what is removed, and when, with retention rules",
            )
        elif key == "errorWorkflow":
            self.record.by_hand(
                path,
                "no workflow starts when another one fails",
                "use error edges, or watch for failed executions",
            )
        elif key in ("callerPolicy", "callerIds"):
            self.record.by_hand(
                path, "access is granted by keys", "give callers a key with the scope they need"
            )

    def _read_nodes(self) -> None:
        for at, node in enumerate(self.source["nodes"]):
            path = f"nodes[{at}]"
            if kind_of(node) == "stickyNote":
                self.draft.notes.append(node)
                self.record.carried(path, f"notes[{len(self.draft.notes) - 1}]", "a note of the drawing")
                continue
            name = str(node.get("name") or node.get("id") or f"node {at + 1}")
            if name in self.nodes:
                self.record.by_hand(path, f"a second node is named `{name}`", "give each node its own name")
                continue
            self.nodes[name], self.paths[name] = node, path
            self.ids[name] = self.draft.new_id(slug(name))

    def _read_connections(self) -> list[Link]:
        found: list[Link] = []
        for name, outputs in self.source["connections"].items():
            base = join("connections", name)
            for kind, lists in (outputs if isinstance(outputs, dict) else {}).items():
                for at, targets in enumerate(lists if isinstance(lists, list) else []):
                    for index, target in enumerate(targets if isinstance(targets, list) else []):
                        path = f"{join(base, kind)}[{at}][{index}]"
                        found += self._read_connection(path, name, kind, at, target)
        return found

    def _read_connection(self, path: str, name: str, kind: str, at: int, target: Any) -> list[Link]:
        dst = str(target.get("node")) if isinstance(target, dict) else ""
        if name not in self.nodes or dst not in self.nodes:
            self.record.by_hand(
                path, "the connection names a node that does not exist", "remove it, or name a node"
            )
        elif kind != "main" or target.get("type", "main") != "main":
            self._inner.add(name)
            self.record.by_hand(
                path, f"connections of the type `{kind}` have no counterpart", "see the node that it leads to"
            )
        else:
            index = target.get("index")
            return [Link(name, at, dst, index if isinstance(index, int) else 0, path)]
        return []

    def _set_aside(self, links: list[Link]) -> None:
        """Keep nodes that do not run by themselves out of the graph: sub-nodes, and nodes that no trigger reaches."""
        linked = {each for link in links for each in (link.src, link.dst)}
        inner = self._inner - linked
        triggers = [each for each in self.nodes if is_trigger(self.nodes[each])]
        orphans = set(self.nodes) - Links(links).reachable(triggers) - inner if triggers else set()
        kept: list[Any] = []
        for name in [each for each in self.nodes if each in inner or each in orphans]:
            kept.append(self.nodes.pop(name))
            target = f"metadata.n8n.nodes[{len(kept) - 1}]"
            if name in inner:
                reason, hint = "sub-nodes have no counterpart", "see the node that it belongs to"
                self.record.by_hand(self.paths[name], reason, hint, target)
            else:
                reason = "no trigger leads to this node, so it never runs"
                self.record.carried(self.paths[name], target, reason)
        if kept:
            self.draft.metadata.setdefault("n8n", {})["nodes"] = kept
        for link in links:
            if link.src not in self.nodes or link.dst not in self.nodes:
                self.record.carried(link.path, "metadata.n8n", "between nodes that never run")
        self.links = Links(each for each in links if each.src in self.nodes and each.dst in self.nodes)
        # Each becomes at least one; refused here, because what follows searches the graph.
        if len(self.nodes) > LIMITS.nodes:
            raise LimitExceededError("nodes of the imported document", LIMITS.nodes)
        if len(self.links.all) > LIMITS.edges:
            raise LimitExceededError("edges of the imported document", LIMITS.edges)

    def _order(self) -> list[str]:
        """Return the nodes in topological order; connections back become the end of a loop, or gaps."""
        loops = [each for each in self.nodes if kind_of(self.nodes[each]) == _LOOP]
        if len(loops) > _MAX_LOOPS:
            raise LimitExceededError("loops of the document", _MAX_LOOPS)
        for name in loops:
            self._find_loop(name)
        self._nest_loops()
        back = {id(link) for link in self.links.all if self.is_back(link)}
        order: list[str] = []
        state: dict[str, int] = {}
        for start in self.nodes:
            self._visit(start, state, order, back)
        self.links = Links(each for each in self.links.all if id(each) not in back or self.is_back(each))
        self._beside.update((each.src, each.output) for each in self.links.all)
        self._arriving = Counter(each.dst for each in self.links.all if not self.is_back(each))
        return order[::-1]

    def _visit(self, start: str, state: dict[str, int], order: list[str], back: set[int]) -> None:
        stack: list[tuple[str, list[Link]]] = []
        if start not in state:
            state[start] = 1
            stack.append((start, self._links_from(start)))
        while stack:
            name, left = stack[-1]
            if not left:
                stack.pop()
                state[name] = 2
                order.append(name)
                continue
            link = left.pop()
            if id(link) in back:
                continue
            if state.get(link.dst) == 1:
                back.add(id(link))
                self._break_cycle(link)
            elif link.dst not in state:
                state[link.dst] = 1
                stack.append((link.dst, self._links_from(link.dst)))

    def _links_from(self, name: str) -> list[Link]:
        """Return the links of a node; those behind a loop are last, so that its body comes first in the order."""
        body = self.loops[name][1] if name in self.loops else None
        return sorted(self.links.out(name), key=lambda each: each.output != body)

    def _break_cycle(self, link: Link) -> None:
        gap = self.draft.new_id(f"{self.ids[link.src]}_again")
        place = self.draft.add_gap(
            gap, f"the loop back to {link.dst}", {"node": link.dst, "type": "main", "index": link.input}
        )
        self.record.by_hand(
            link.path,
            "a workflow has no loops",
            "use `split` for lists, `retry` for failures, or a workflow that calls itself",
            place,
        )
        self._gaps.append((link, gap))

    # Regions

    def _find_loop(self, name: str) -> None:
        """Make the body of a `splitInBatches` loop a region."""
        node = self.nodes[name]
        output = 1 if float(node.get("typeVersion") or 1) >= 3 else 0
        links = self.links.out(name)
        body = self.links.reachable([each.dst for each in links if each.output == output], name)
        body -= self.links.reachable([each.dst for each in links if each.output != output], name)
        split = self.ids[name]
        region = Region(body, split, self.draft.new_id(f"{split}_done"), "", None, is_loop=True)
        self.loops[name] = (region, output)

    def _nest_loops(self) -> None:
        """Assign each node, and each loop, to the smallest loop around it."""
        for region, _ in sorted(self.loops.values(), key=lambda each: len(each[0].members)):
            for each in region.members:
                self.regions.setdefault(each, region)
        for name, (region, _) in self.loops.items():
            region.parent = self.regions.get(name)

    def is_back(self, link: Link) -> bool:
        """Return whether a link leads from the body of a loop back to the loop."""
        return link.dst in self.loops and link.src in self.loops[link.dst][0].members

    def _open_region(self, name: str, flow: Flow) -> Region:
        parent = self.regions.get(name)
        members = {name}
        waiting = [name]
        arrived: Counter[str] = Counter()
        while waiting:
            for link in self.links.out(waiting.pop()):
                if link.dst in members or not self._continues(link):
                    continue
                arrived[link.dst] += 1
                inside = parent is None or link.dst in parent.members
                if inside and arrived[link.dst] == self._arriving[link.dst]:
                    members.add(link.dst)
                    waiting.append(link.dst)
        node_id = self.ids[name]
        region = Region(
            members,
            self.draft.new_id(f"{node_id}_items"),
            self.draft.new_id(f"{node_id}_results"),
            flow.list_text,
            parent,
        )
        for each in members:
            self.regions[each] = region
        self.draft.add_node(region.split, "split", {"input_array": f"{{{{ {flow.list_text} }}}}"})
        return region

    def _runs_per_item(self, name: str) -> bool:
        kind = kind_of(self.nodes[name])
        return kind not in LIST_TYPES and kind not in (_LOOP, _RESPOND) and not is_trigger(self.nodes[name])

    def _continues(self, link: Link) -> bool:
        """Return whether a chain that runs per item goes on along a link; it ends where all items are needed."""
        node = self.nodes[link.dst]
        if not self._runs_per_item(link.dst) or node.get("executeOnce") or link.src in self._read_as_list:
            return False
        gives_items = kind_of(self.nodes[link.src]) == "httpRequest" and kind_of(node) == "filter"
        return not gives_items and not reads_input(node.get("parameters"))

    def collected(self, region: Region) -> Flow:
        """Return the flow of the results of a region; its aggregator is added on the first call."""
        if region.flow is not None:
            return region.flow
        outs = self._outputs_of(region, self._exits(region))
        # An exit with several items for one item makes a list of every result; the lists are joined behind.
        many = any(each.flow.many for each in outs)
        if len({each.flow.text for each in outs}) > 1:
            outs = [self._kept_apart(region, each) for each in outs]
        texts = [each.flow.list_text if many else each.flow.text for each in outs]
        if any(text != f"${each.node}" for text, each in zip(texts, outs, strict=True)):
            collector = self.draft.new_id(f"{region.aggregator}_item")
            text = " ?? ".join(dict.fromkeys(texts))
            self.draft.add_node(collector, "edit", {"from": f"{{{{ {text} }}}}"}, error={"type": "halt"})
            for each in outs:
                self._edge_once(each.node, collector, each.label, is_error=each.is_error)
            outs = [Output(collector, Flow(many, f"${collector}"))]
        # A leaf that ends the chain of an item is collected as it is.
        leaves = [each for each in self.outputs if each in region.members and not self.links.out(each)]
        ends = outs or self._outputs_of(region, [(each, 0) for each in leaves])
        self.draft.add_node(region.aggregator, "aggregator", {"timeout": 0})
        for each in ends:
            self._edge_once(each.node, region.aggregator, each.label, is_error=each.is_error)
        if not ends:
            self.draft.add_edge(region.split, region.aggregator)
        loses = any(kind_of(self.nodes[each]) in _ROUTERS for each in region.members)
        listed = f"flatten(${region.aggregator})" if many else f"${region.aggregator}"
        region.flow = Flow(True, f"[each for each in {listed} if each != null]" if loses else listed)
        self.results[region.flow.text] = region
        return region.flow

    def _kept_apart(self, region: Region, out: Output) -> Output:
        """Return an output whose expression has a value only if the output was taken."""
        if _tells(out.flow, out):
            return out
        kept, flow = self._keep(f"{region.aggregator}_from_{out.node}", out.flow)
        self._edge_once(out.node, kept, out.label, is_error=out.is_error)
        return Output(kept, flow)

    def _keep(self, wanted: str, flow: Flow) -> tuple[str, Flow]:
        """Add a node that keeps what a connection carries; return it, and the flow of its output. That one exists only
        if the connection was taken; what was carried may be the output of an earlier node, which always exists."""
        kept = self.draft.new_id(wanted)
        parameters: dict[str, Any] = {"from": f"{{{{ {flow.text} }}}}"}
        if flow.many:
            parameters = {
                "mode": "keep_only",
                "assignments": [{"name": "items", "value": f"{{{{ {flow.text} }}}}"}],
            }
        self.draft.add_node(kept, "edit", parameters, error={"type": "halt"})
        return kept, Flow(flow.many, f"${kept}.items" if flow.many else f"${kept}")

    def _outputs_of(self, region: Region, places: list[tuple[str, int]]) -> list[Output]:
        """Return the outputs at places of a region; those of a region inside of it are its collected results."""
        found: dict[tuple[str, str | None, str], Output] = {}
        for name, output in places:
            inner = self._outermost(name, region)
            if inner is not None:
                each = Output(inner.aggregator, self.collected(inner))
            elif output < len(self.outputs.get(name, ())):
                each = self.outputs[name][output]
            else:
                continue
            found[each.node, each.label, each.flow.text] = each
        return list(found.values())

    def _outermost(self, name: str, own: Region | None) -> Region | None:
        """Return the outermost region that what a node gives leaves on its way to a region; None if there is none."""
        region = self.loops[name][0] if name in self.loops else self.regions.get(name)
        if region is None or _encloses(region, own):
            return None
        while region.parent is not None and not _encloses(region.parent, own):
            region = region.parent
        return region

    def given_by(self, name: str) -> Flow:
        """Return the list of what a node inside of a region gives over all items, for a node outside of it."""
        region = self.regions[name]
        if self._exits(region) != [(name, 0)]:
            raise UntranslatableError(
                f"only the last node of a chain is collected, and `{name}` is not the only last one"
            )
        return self.collected(region)

    def is_thinned(self, region: Region, name: str) -> bool:
        """Return whether a node of a region comes behind one that passes on only some items."""
        routers = [each for each in region.members if each != name and kind_of(self.nodes[each]) in _ROUTERS]
        return any(name in self.links.reachable([each]) for each in routers)

    def is_even(self, region: Region) -> bool:
        """Return whether a region gives one result for each of its items, in their order."""
        return self.collected(region).text == f"${region.aggregator}" and not any(
            self.nodes[each].get("onError") or self.nodes[each].get("continueOnFail")
            for each in region.members
        )

    def _exits(self, region: Region) -> list[tuple[str, int]]:
        """Return the outputs by which items leave a region."""
        return list(dict.fromkeys((link.src, link.output) for link in self._leaving(region)))

    def _leaving(self, region: Region) -> list[Link]:
        members = [each for each in self.nodes if each in region.members]
        return [link for each in members for link in self.links.out(each) if link.dst not in region.members]

    def _leaves_at_once(self, region: Region) -> bool:
        """Return whether everything that leaves a region goes to the same places."""
        if region.leaves_at_once is None:
            targets: dict[tuple[str, int], set[tuple[str, int]]] = {}
            for link in self._leaving(region):
                targets.setdefault((link.src, link.output), set()).add((link.dst, link.input))
            region.leaves_at_once = len({frozenset(each) for each in targets.values()}) <= 1
        return region.leaves_at_once

    # Nodes

    def is_behind_error(self, name: str) -> bool:
        """Return whether a path leads from an error output to a node."""
        starts = [
            link.dst
            for src, outputs in self.outputs.items()
            for link in self.links.out(src)
            if link.output < len(outputs) and outputs[link.output].is_error
        ]
        return name in self.links.reachable(starts)

    def input_flow(self, name: str) -> Flow:
        """Return what arrives at a node, over all of its inputs that arrive at the first."""
        return self.merged([link for link in self.links.into(name) if not self.is_back(link)], name)

    def merged(self, links: list[Link], name: str, *, tells: bool = False) -> Flow:
        """Return the flow of several connections that lead to one input. With `tells`, its expression has a value only
        if one of them was taken."""
        flows = [self._flow_along(link, name) for link in links]
        if not flows:
            return Flow(False, "$trigger")
        if sum(map(len, dict.fromkeys(each.text for each in flows))) > _MAX_TEXT:
            raise UntranslatableError("too many branches arrive at this node")
        if tells or len({each.text for each in flows}) > 1:
            flows = [self._carried_along(link, flow) for link, flow in zip(links, flows, strict=True)]
        texts = list(dict.fromkeys(each.text for each in flows))
        if len(texts) == 1:
            return flows[0]
        if any(each.many for each in flows):
            return Flow(True, " ?? ".join(dict.fromkeys(f"({each.list_text})" for each in flows)))
        return Flow(False, f"({' ?? '.join(texts)})")

    def _carried_along(self, link: Link, flow: Flow) -> Flow:
        """Return a flow of what a link carries whose expression has a value only if the link was taken."""
        outermost = self._outermost(link.src, self.regions.get(link.dst))
        outputs = self.outputs.get(link.src, [])
        if outermost is not None:
            out = Output(outermost.aggregator, flow)
        elif is_trigger(self.nodes[link.src]) and len(self._triggers) == 1:
            return flow  # this link is always taken
        elif link.output < len(outputs):
            out = outputs[link.output]
        else:
            return flow  # there is no such output, which is reported
        if _tells(flow, out):
            return flow
        if link.path not in self._passed:
            wanted = f"{self.ids[link.dst]}_from_{self.ids[link.src]}"
            self._passed[link.path] = self._keep(wanted, flow)
        return self._passed[link.path][1]

    def _flow_along(self, link: Link, name: str) -> Flow:
        own = self.regions.get(name)
        if link.src in self.loops and link.output == self.loops[link.src][1]:
            return Flow(False, "$item")
        outermost = self._outermost(link.src, own)
        if outermost is not None:
            if link.src not in self.loops and not self._leaves_at_once(outermost):
                raise UntranslatableError("items arrive from several places of a chain that runs per item")
            return self.collected(outermost)
        outputs = self.outputs.get(link.src, [])
        return outputs[link.output].flow if link.output < len(outputs) else Flow(False, "$trigger")

    def _import_node(self, name: str) -> None:
        node, node_id = self.nodes[name], self.ids[name]
        region = self.regions.get(name)
        try:
            if node.get("disabled") and kind_of(node) == _LOOP:
                raise UntranslatableError("a disabled loop has no counterpart")
            # A merge reads each of its inputs by itself.
            is_merge = kind_of(node) == "merge" and not node.get("disabled")
            flow = Flow(False, "$trigger") if is_merge else self.input_flow(name)
            if node.get("executeOnce") and region is not None and region.batch > 1 and not flow.many:
                raise UntranslatableError(
                    "running once for the items of a batch, which pass one by one, has no counterpart"
                )
        except UntranslatableError as error:
            self._add_gap(name, error.message, Flow(False, "$trigger"))
            return
        if flow.many and node.get("executeOnce"):
            flow = Flow(True, f"({flow.list_text})[:1]")
        if (
            flow.many
            and self._runs_per_item(name)
            and kind_of(node) != "filter"
            and (region is None or region.is_loop)
        ):
            region = self._open_region(name, flow)
            self.entries[name] = region.split
            self.draft.add_edge(region.split, node_id)
            flow = Flow(False, "$item")
            self._note_region(name, region)
        reader = StepReader(self, name, node, node_id, flow, region)
        try:
            outputs = reader.disabled() if node.get("disabled") else read_step(reader, kind_of(node))
            reader.refuse_expressions()
        except UntranslatableError as error:
            self._add_gap(name, error.message, flow)
            return
        self.entries.setdefault(name, reader.entry)
        self.outputs[name] = outputs
        self._read_common(name, reader, region)

    def _note_region(self, name: str, region: Region) -> None:
        place = self.draft.place(region.split)
        for link in self.links.into(name):
            if link.src not in region.members:
                self.record.approximated(link.path, place, _PER_ITEM)

    def _add_gap(self, name: str, reason: str, flow: Flow) -> None:
        node, node_id = self.nodes[name], self.ids[name]
        if name in self.loops:
            self._open_loop(name)
        place = self.draft.add_gap(
            node_id, reason, node, name=name if name != node_id else "", position=_position(node)
        )
        self.entries.setdefault(name, node_id)
        count = max([1, *(link.output + 1 for link in self.links.out(name))])
        self.outputs[name] = [Output(node_id, Flow(False, f"${node_id}"))] * count
        self.record.by_hand(
            self.paths[name], reason, "replace the node by nodes of Rune, or by a custom node", place
        )

    def _open_loop(self, name: str) -> None:
        """Make the body of a loop that is not imported a part of what is around it."""
        region, _ = self.loops[name]
        back = [link for link in self.links.into(name) if self.is_back(link)]
        del self.loops[name]
        for each in [each for each, own in self.regions.items() if own is region]:
            del self.regions[each]
            if region.parent is not None:
                self.regions[each] = region.parent
        for inner, _ in self.loops.values():
            if inner.parent is region:
                inner.parent = region.parent
        for link in back:
            self._break_cycle(link)
        self.links = Links(each for each in self.links.all if each not in back)

    def _read_common(self, name: str, reader: StepReader, region: Region | None) -> None:
        """Read the fields that every node has, and report the parameters."""
        node, path, node_id = self.nodes[name], self.paths[name], self.ids[name]
        target, place = self.draft.node(node_id), self.draft.place(node_id)
        target["metadata"] = {"n8n": {key: node[key] for key in _KEPT if not is_empty(node.get(key))}}
        for key in target["metadata"]["n8n"]:
            self.record.carried(f"{path}.{key}", f"{place}.metadata.n8n.{key}")
        if name != node_id:
            target["name"] = name
        self.record.carried(f"{path}.name", f"{place}.name" if name != node_id else f"{place}.id")
        for status, key, relative, message, hint in reader.notes:
            self.record.add(
                join(path, key) if key else path,
                status,
                f"{place}.{relative}" if relative else place,
                message,
                hint,
            )
        if not any(key == "type" for _, key, *_ in reader.notes):
            self.record.carried(f"{path}.type", f"{place}.type")
        if _position(node) is not None:
            target["position"] = _position(node)
            self.record.carried(f"{path}.position", f"{place}.position")
        if node.get("notes"):
            target["notes"] = node["notes"]
            self.record.carried(f"{path}.notes", f"{place}.notes")
        if node.get("disabled") is not None:
            self.record.carried(
                f"{path}.disabled", place, "a disabled node passes its items on" if node["disabled"] else ""
            )
        reader.read_policies(target, place, in_region=region is not None)

    # Edges

    def _connect(self, link: Link) -> None:
        loops = self.loops
        other = self.regions.get(link.dst)
        if self.is_back(link):
            self.record.carried(
                link.path, self.draft.place(loops[link.dst][0].aggregator), "the end of the loop's body"
            )
            return
        entry = self.entries[link.dst]
        if link.path in self._passed:
            kept = self._passed[link.path][0]
            self._edge_once(kept, entry)
            entry = kept
        outermost = self._outermost(link.src, other)
        if link.src in loops and link.output == loops[link.src][1]:
            place = self.draft.add_edge(loops[link.src][0].split, entry)
        elif outermost is not None:
            place = self._edge_once(outermost.aggregator, entry)
        else:
            outputs = self.outputs[link.src]
            if link.output >= len(outputs):
                self.record.by_hand(
                    link.path, f"the node has no output {link.output}", "remove the connection"
                )
                return
            out = outputs[link.output]
            place = self._edge_once(out.node, entry, out.label, is_error=out.is_error)
        self._report_link(link, place)

    def _edge_once(self, src: str, dst: str, label: str | None = None, *, is_error: bool = False) -> str:
        """Return the path of an edge, which is added unless it exists; a second error edge goes through a relay."""
        key = (src, dst, label, is_error)
        if key not in self._edges:
            first = self._error_edges.get(src) if is_error else None
            self._edges[key] = self._add_edge(*key) if first is None else self._relayed(first, dst)
        return self._edges[key]

    def _add_edge(self, src: str, dst: str, label: str | None, is_error: bool) -> str:
        place = self.draft.add_edge(src, dst, label, is_error=is_error)
        if is_error:
            self._error_edges[src] = self.draft.edges[-1]
        return place

    def _relayed(self, first: dict[str, Any], dst: str) -> str:
        """Lead the error edge of a node to several nodes."""
        if first["dst"] not in self._relays:
            relay = self.draft.new_id(f"{first['src']}_failed")
            self.draft.add_node(relay, "noop")
            self._relays.add(relay)
            former, first["dst"] = first["dst"], relay
            self.draft.add_edge(relay, former)
        return self.draft.add_edge(first["dst"], dst)

    def _report_link(self, link: Link, place: str) -> None:
        if self.record.has(link.path):
            return
        if self._is_joint(link.dst, link.input):
            self.record.approximated(link.path, place, _TWICE)
        elif self._beside[link.src, link.output] > 1:
            self.record.approximated(link.path, place, _PARALLEL)
        else:
            self.record.carried(link.path, place)

    def _is_joint(self, dst: str, input: int) -> bool:
        """Return whether several links that arrive at an input carry items."""
        known = self._joint.get((dst, input))
        if known is None:
            links = self.links.into(dst)
            arriving = [each for each in links if each.input == input and not self.is_back(each)]
            known = len(arriving) > 1 and not self.links.exclusive(arriving, self._routers, self._triggers)
            self._joint[dst, input] = known
        return known

    @cached_property
    def _read_as_list(self) -> set[str]:
        return {name for each in self.nodes.values() for name in nodes_read(each.get("parameters"))}

    @cached_property
    def _routers(self) -> list[str]:
        """Nodes that pass one item to one of their outputs. Several items may take several."""
        routers = [each for each in self.nodes if kind_of(self.nodes[each]) in _ROUTERS]
        return [each for each in routers if self._takes_one_item(self.regions.get(each))]

    def _takes_one_item(self, region: Region | None) -> bool:
        return region is None or (region.is_loop and region.batch == 1)

    @cached_property
    def _triggers(self) -> list[str]:
        return [each for each in self.nodes if is_trigger(self.nodes[each])]


def kind_of(node: dict[str, Any]) -> str:
    """Return the type of a node without the prefix of n8n's own nodes."""
    return str(node.get("type") or "").removeprefix(PREFIX)


def is_trigger(node: dict[str, Any]) -> bool:
    kind = kind_of(node)
    return kind in TRIGGER_TYPES or kind.lower().endswith("trigger")


_NAMED = re.compile(r"\$(\w+)")


def _tells(flow: Flow, out: Output) -> bool:
    """Return whether the expression of a flow has a value only if an output was taken: it reads nothing but the node,
    and the node has no other output."""
    is_only = out.label is None and not out.is_error
    return is_only and "??" not in flow.text and set(_NAMED.findall(flow.text)) == {out.node}


def _position(node: dict[str, Any]) -> Any:
    found = node.get("position")
    if isinstance(found, list) and len(found) == 2:
        return {"x": found[0], "y": found[1]}
    return None


def _encloses(outer: Region, inner: Region | None) -> bool:
    while inner is not None:
        if inner is outer:
            return True
        inner = inner.parent
    return False
