"""The result of a run: its status and output, the runs of its nodes, and what it waits for.

Notebooks show a workflow or a result as a drawing in SVG, with the states of a run, and as plain text.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rune.documents.draw.formats import draw_svg
from rune.documents.draw.model import draw_stored
from rune.errors import RuneError

if TYPE_CHECKING:
    from rune.build.flow import Workflow


_MAX_PROBLEMS = 5
_BY_WEIGHT = ("failed", "cancelled", "success", "skipped")


def picture(flow: Workflow, result: Result | None = None) -> dict[str, str]:
    """Return the forms of a workflow by MIME type; only text if it cannot be parsed."""
    text = repr(flow) if result is None else _lines(result)
    parsed = flow.parse()
    if parsed.definition is None or parsed.refused:
        problems = [f"{each.path or 'document'}: {each.message}" for each in parsed.problems[:_MAX_PROBLEMS]]
        return {"text/plain": "\n".join([text, *problems])}
    drawing = draw_stored(parsed.definition, flow.registry().catalogue)
    states = None if result is None else states_of(result)
    return {"text/plain": text, "image/svg+xml": draw_svg(drawing, states)}


def states_of(result: Result) -> dict[str, tuple[str, str]]:
    """Return for each node that ran its state and a note: for runs of items, how many ended in each state."""
    counted: dict[str, Counter[str]] = {}
    items: set[str] = set()
    for run in result:
        counted.setdefault(run.node_id, Counter())[run.status] += 1
        if run.item:
            items.add(run.node_id)
    found: dict[str, tuple[str, str]] = {}
    for node, counts in counted.items():
        state = next((each for each in _BY_WEIGHT if counts[each]), "success")
        note = (
            ", ".join(f"{counts[each]} {each}" for each in _BY_WEIGHT if counts[each])
            if node in items
            else state
        )
        found[node] = (state, note)
    return found


def _lines(result: Result) -> str:
    error = result.error
    reason = f": {error.code}: {error.message}" if error is not None else ""
    lines = [f"{result.status}{reason}"]
    lines += [f"  {node}: {note}" for node, (_, note) in states_of(result).items()]
    return "\n".join(lines)


class ExecutionFailed(RuneError):  # noqa: N818 - named as in httpx: the state, not the mistake
    """An execution did not complete. `node` and `item` tell where it failed, `code` why, and `hint` when nodes of this
    type fail with the code, or how to see what the execution waits for."""

    code = "EXECUTION_FAILED"

    def __init__(self, result: Result) -> None:
        error = result.error
        where = ""
        self.node = error.node_id if error is not None else ""
        self.item = error.item if error is not None else ""
        self.hint = "result.explain() lists what it waits for" if error is None else _hint(result, error)
        if self.node:
            where = f" in `{self.node}`" + (f" of item {self.item}" if self.item else "")
        reason = f": {error.code}: {error.message}" if error is not None else ""
        super().__init__(f"the execution ended as {result.status}{where}{reason}")
        if error is not None:
            self.code = error.code
        self.result = result


@dataclasses.dataclass(frozen=True)
class NodeError:
    """The error of a node or of an execution."""

    code: str
    message: str
    details: dict[str, Any] = dataclasses.field(default_factory=dict)
    node_id: str = ""
    item: str = ""


@dataclasses.dataclass(frozen=True)
class NodeRun:
    """One run of a node. `item` is its place in splits, such as `users:5`, empty outside of splits."""

    node_id: str
    item: str
    status: str
    attempts: int
    output: Any
    error: NodeError | None
    started_at: str | None
    duration_ms: int


@dataclasses.dataclass(frozen=True)
class Waiting:
    """A node that has not ended, and why. Edges are named by the node they come from; `due` is in epoch ms."""

    node: str
    item: str
    reason: str
    arrived: list[str] = dataclasses.field(default_factory=list)
    skipped: list[str] = dataclasses.field(default_factory=list)
    missing: list[str] = dataclasses.field(default_factory=list)
    due: int | None = None
    done: int | None = None
    total: int | None = None


class Result:
    """What an execution has done: `output`, `status`, `error`, and the runs of its nodes by id.

    `result["quote"]` is the run of a node, `result["quote", "users:5"]` the one for an item of a split.
    """

    def __init__(
        self, document: dict[str, Any], waiting: Sequence[Waiting] = (), flow: Workflow | None = None
    ) -> None:
        self.document = document
        self.flow = flow
        self._waiting = list(waiting)
        self._runs = [_node_run(each) for each in document["nodes"]]

    @property
    def id(self) -> str:
        return str(self.document["execution_id"])

    @property
    def status(self) -> str:
        return str(self.document["status"])

    @property
    def ended(self) -> bool:
        return self.status not in ("running", "paused")

    @property
    def output(self) -> Any:
        return self.document["output"]

    @property
    def failed_items(self) -> int:
        return int(self.document["failed_items"])

    @property
    def error(self) -> NodeError | None:
        return _error(self.document["error"])

    @property
    def nodes(self) -> list[NodeRun]:
        """The runs in the order they ended."""
        return list(self._runs)

    @property
    def timeline(self) -> list[NodeRun]:
        """The runs that began, in the order they began."""
        return sorted((each for each in self._runs if each.started_at), key=lambda each: str(each.started_at))

    def __getitem__(self, key: str | tuple[str, str]) -> NodeRun:
        node, item = key if isinstance(key, tuple) else (key, "")
        found = [each for each in self._runs if each.node_id == node]
        for each in found:
            if each.item == item:
                return each
        if not found:
            raise KeyError(
                f"no run of `{node}`; there are runs of {', '.join(sorted(self._ids())) or 'no node'}"
            )
        items = ", ".join(each.item for each in found[:5])
        raise KeyError(f"`{node}` ran once per item; name one, for example: {items}")

    def __contains__(self, node: object) -> bool:
        return node in self._ids()

    def __iter__(self) -> Iterator[NodeRun]:
        return iter(self._runs)

    def _ids(self) -> set[str]:
        return {each.node_id for each in self._runs}

    def explain(self, node: str | None = None, item: str = "") -> Any:
        """Return what the execution waits for: all of it as a list, or the entry of one node."""
        if node is None:
            return list(self._waiting)
        for each in self._waiting:
            if each.node == node and each.item == item:
                return each
        raise KeyError(f"`{node}` waits for nothing")

    def raise_for_status(self) -> Result:
        """Raise ExecutionFailed unless the execution completed."""
        if self.status != "completed":
            raise ExecutionFailed(self)
        return self

    def __repr__(self) -> str:
        return f"<Result {self.status}: {len(self._runs)} node runs>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the drawing with states that notebooks show."""
        return picture(self.flow, self) if self.flow is not None else {"text/plain": repr(self)}


def _hint(result: Result, error: NodeError) -> str:
    """Return when nodes of the type that failed fail with this code, as the type describes it; empty if it does not."""
    flow = result.flow
    if flow is None or error.node_id not in flow:
        return ""
    kind = flow.registry().catalogue.get(flow[error.node_id].type)
    return "" if kind is None else str(kind.errors.get(error.code, ""))


def _node_run(data: dict[str, Any]) -> NodeRun:
    return NodeRun(
        node_id=data["node_id"],
        item=item_text(data["lineage"]),
        status=data["status"],
        attempts=data["attempts"],
        output=data["output"],
        error=_error(data["error"]),
        started_at=data["started_at"],
        duration_ms=data["duration_ms"] or 0,
    )


def item_text(lineage: Sequence[dict[str, Any]]) -> str:
    """Return the place of a run in splits: `users:5`, or `users:5/orders:2` in a nested split."""
    return "/".join(f"{each['split_node_id']}:{each['item_index']}" for each in lineage)


def _error(data: dict[str, Any] | None) -> NodeError | None:
    if data is None:
        return None
    return NodeError(
        data["code"],
        data["message"],
        data.get("details") or {},
        data.get("node_id", ""),
        item_text(data.get("lineage") or ()),
    )
