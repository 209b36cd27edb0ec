"""What the names of n8n's expressions refer to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from rune.documents.importers import javascript as js
from rune.documents.importers.javascript import Step, UntranslatableError
from rune.documents.importers.translate import Value, quoted

if TYPE_CHECKING:
    from rune.documents.importers.n8n.graph import N8nImporter, Region

_UNAVAILABLE = {
    "$env": "environment variables cannot be read in expressions",
    "$vars": "variables of the instance have no counterpart",
    "$secrets": "secrets cannot be read in expressions; use a credential",
    "$binary": "binary data has no counterpart; files are references to blobs",
    "$runIndex": "the number of a run has no counterpart",
    "$prevNode": "the previous node has no counterpart",
    "$parameter": "other parameters of the node cannot be read",
    "$jmespath": "JMESPath has no counterpart",
}


class Flow(msgspec.Struct, frozen=True):
    """What a connection carries: one item, or a list of many, and the expression for it."""

    many: bool
    text: str

    @property
    def list_text(self) -> str:
        """The expression for the list of all items."""
        return self.text if self.many else f"[{self.text}]"


class N8nScope:
    """The names that are visible to the expressions of one node."""

    def __init__(
        self, importer: N8nImporter, flow: Flow, region: Region | None, *, element: bool = False
    ) -> None:
        self._importer = importer
        self._flow = Flow(False, "$item") if element else flow
        self._region = region
        self._element = element

    def resolve(self, base: Any, steps: tuple[Step, ...]) -> tuple[Value, int] | None:
        """Resolve `$json`, `$('Node')`, `$node[...]`, `$input` and the other names of n8n."""
        if not isinstance(base, js.Name):
            return None
        name = base.name
        if name in _UNAVAILABLE:
            raise UntranslatableError(_UNAVAILABLE[name])
        if name == "$json":
            return self._item(self._flow, "$json"), 0
        if name == "$input":
            return self._of(self._flow, steps, 0, "$input")
        if name == "$" and steps and steps[0].kind == "call":
            return self._of_node(_argument(steps[0]), steps, 1)
        if name == "$node" and steps:
            wanted = steps[0].name if steps[0].kind == "name" else _constant(steps[0].key)
            return self._of_node(wanted, steps, 1)
        return self._special(name, steps)

    def _special(self, name: str, steps: tuple[Step, ...]) -> tuple[Value, int] | None:
        first = steps[0].name if steps else ""
        if name in {"$now", "DateTime"}:
            is_now = name == "$now" or (first in {"now", "utc"} and len(steps) > 1)
            return (Value("now()", kind="date"), 0 if name == "$now" else 2) if is_now else None
        if name == "$today":
            return Value('format_date(now(), "%Y-%m-%dT00:00:00Z")', kind="date"), 0
        if name == "$execution" and first == "id":
            return Value("$execution.id", kind="text"), 1
        if name == "$workflow" and first in {"id", "name", "active"}:
            found = self._importer.title if first == "name" else self._importer.source.get(first)
            return Value(quoted(found)), 1
        if name in {"$itemIndex", "$position"}:
            return Value("$index" if self._region is not None or self._element else "0", kind="number"), 0
        if name.startswith("$"):
            raise UntranslatableError(f"`{name}` has no counterpart")
        return None

    def _of_node(self, name: str, steps: tuple[Step, ...], at: int) -> tuple[Value, int]:
        importer = self._importer
        if name not in importer.nodes:
            raise UntranslatableError(f"no node is named `{name}`")
        if at < len(steps) and steps[at].name == "isExecuted":
            return Value(f"exists(${importer.ids[name]})", kind="boolean"), at + 1
        if name in importer.loops:
            body = importer.loops[name][0]
            flow = Flow(False, "$item") if _is_within(self._region, body) else importer.collected(body)
            return self._of(flow, steps, at, name)
        if name not in importer.outputs:
            raise UntranslatableError(f"`{name}` does not run before this node")
        flow = (
            importer.outputs[name][0].flow
            if importer.outputs[name]
            else Flow(False, f"${importer.ids[name]}")
        )
        region = importer.regions.get(name)
        if region is not None and not _is_within(self._region, region):
            flow = importer.collected(region)
        return self._of(flow, steps, at, name)

    def _of(self, flow: Flow, steps: tuple[Step, ...], at: int, name: str) -> tuple[Value, int]:
        """Resolve `.item.json`, `.first().json`, `.last().json`, `.all()` and `.json` of a flow."""
        names = [each.name or each.kind for each in steps[at : at + 3]]
        if names[:2] == ["item", "json"]:
            return self._item(flow, name), at + 2
        if names[:1] == ["json"]:
            return self._item(flow, name), at + 1
        if names in (["first", "call", "json"], ["last", "call", "json"]):
            if not flow.many:
                return Value(flow.text), at + 3
            return Value(f"({flow.text})[{0 if names[0] == 'first' else -1}]", optional=True), at + 3
        if names[:2] == ["all", "call"]:
            return Value(f'[{{"json": each}} for each in {flow.list_text}]', kind="list"), at + 2
        shown = ".".join(names) or "the node itself"
        raise UntranslatableError(f"`{shown}` of a node has no counterpart")

    def _item(self, flow: Flow, name: str) -> Value:
        if not flow.many:
            return Value(flow.text)
        if self._region is not None and self._region.items == flow.list_text:
            return Value("$item")
        if self._element and flow.text == self._flow.text:
            return Value("$item")
        raise UntranslatableError(f"the item of `{name}` that belongs to an item here is not known")


def _is_within(inner: Region | None, outer: Region) -> bool:
    while inner is not None:
        if inner is outer:
            return True
        inner = inner.parent
    return False


def _argument(step: Step) -> str:
    if len(step.arguments) != 1:
        raise UntranslatableError("`$()` takes the name of a node")
    return _constant(step.arguments[0])


def _constant(tree: Any) -> str:
    if isinstance(tree, js.Constant) and isinstance(tree.value, str):
        return tree.value
    raise UntranslatableError("the name of a node must be a text")
