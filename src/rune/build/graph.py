"""Nodes, outlets and edges of a workflow that is being built, and the comments at them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, Union

from rune.build.expressions import Ref, plain
from rune.nodes.custom import register_placer

if TYPE_CHECKING:
    from rune.build.flow import Workflow


LOADING: ContextVar[str] = ContextVar("rune_loading_file", default="")
"""The Python file that is being loaded; its lines are remembered for the comments at them."""


class Comment:
    """The comment lines above a node or edge, and the one behind it, without `#`."""

    __slots__ = ("lead", "trailing")

    def __init__(self) -> None:
        self.lead: list[str] = []
        self.trailing = ""

    def __bool__(self) -> bool:
        return bool(self.lead or self.trailing)


class Comments:
    """The comments of a workflow. `others` are those that no node or edge owns, with their line numbers; `lines` are
    the lines of the Python file that made the nodes and edges."""

    def __init__(self) -> None:
        self.header: list[str] = []
        self.nodes: dict[str, Comment] = {}
        self.edges: dict[int, Comment] = {}
        self.others: list[tuple[int, str]] = []
        self.lines: dict[tuple[str, str | int], int] = {}

    def place_node(self, id: str) -> None:
        """Remember the line of the Python file that made a node, if one is being loaded."""
        if LOADING.get():
            self.lines["node", id] = _caller_line(LOADING.get())

    def place_edge(self, index: int) -> None:
        if LOADING.get():
            self.lines["edge", index] = _caller_line(LOADING.get())


def _caller_line(filename: str) -> int:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == filename:
            return frame.f_lineno
        frame = frame.f_back
    return 0


def comment_text(comment: str) -> str:
    """Return a comment without its `#` and the space after it."""
    return comment.lstrip("#").removeprefix(" ").rstrip()


UNSET: Final[Any] = object()
"""The default of optional parameters: the document does not hold them."""

OPEN: ContextVar[tuple[Workflow, ...]] = ContextVar("rune_open_workflows", default=())
"""The workflows whose `with` blocks are open, the innermost last."""

SPLITS: ContextVar[tuple[Split, ...]] = ContextVar("rune_open_splits", default=())


@contextmanager
def without_open_workflow() -> Iterator[None]:
    """Close all workflows during the block: functions that run in it place no nodes."""
    token = OPEN.set(())
    try:
        yield
    finally:
        OPEN.reset(token)


Target = Union["Node", "Sequence[Node]"]


class Retry:
    """Whether and when a failed attempt is retried. Delays are in seconds; a field that is None has its default."""

    __slots__ = ("_given",)

    def __init__(
        self,
        max_attempts: int | None = None,
        *,
        initial_delay: float | None = None,
        backoff: float | None = None,
        max_delay: float | None = None,
        jitter: bool | None = None,
        on: Sequence[str] | None = None,
    ) -> None:
        fields: dict[str, Any] = {
            "max_attempts": max_attempts,
            "initial_delay": initial_delay,
            "backoff": backoff,
            "max_delay": max_delay,
            "jitter": jitter,
            "on": None if on is None else list(on),
        }
        self._given = {name: value for name, value in fields.items() if value is not None}

    def plain(self) -> dict[str, Any]:
        """Return the fields that are given."""
        return dict(self._given)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Retry) and self._given == other._given

    def __hash__(self) -> int:
        return hash(str(self._given))

    def __repr__(self) -> str:
        return f"Retry({', '.join(f'{name}={value!r}' for name, value in self._given.items())})"


class ErrorBranch(TypedDict, total=False):
    """An error policy in full."""

    type: Literal["halt", "ignore", "branch"]
    error_edge: str


class CredentialReference(TypedDict, total=False):
    """A reference to a stored credential."""

    name: str
    id: str
    type: str


class PinnedOutput(TypedDict, total=False):
    """An output that is given instead of calling the node, and the outlet of a type that has outlets."""

    output: Any
    outlet: str


class Common(TypedDict, total=False):
    """The fields that every node may have, whatever its type."""

    name: str
    retry: Retry | Mapping[str, Any]
    timeout: float
    join: Literal["all", "any"]
    error: Literal["halt", "ignore", "branch"] | ErrorBranch
    queue: str
    credentials: str | CredentialReference
    at_most_once: bool
    idempotency_key: bool
    trigger: bool
    pin: PinnedOutput
    output: Any
    position: Any
    notes: Any
    metadata: Any


COMMON = frozenset(Common.__annotations__)


class Connectable:
    """What an edge can leave from: a node, or one of its outlets."""

    __slots__ = ()

    def _leave(self, target: Node) -> None:
        raise NotImplementedError

    def __rshift__(self, target: Any) -> Any:
        for each in _nodes(target):
            self._leave(each)
        return target


class Outlet(Connectable):
    """A way out of a node: a labelled outlet, the error edge, or an edge with an id of its own."""

    __slots__ = ("_id", "_is_error", "_label", "_node")

    def __init__(
        self, node: Node, *, label: str | None = None, is_error: bool = False, id: str | None = None
    ) -> None:
        self._node = node
        self._label = label
        self._is_error = is_error
        self._id = id

    def named(self, id: str) -> Outlet:
        """Give the edge that leaves here an id."""
        return Outlet(self._node, label=self._label, is_error=self._is_error, id=id)

    def _leave(self, target: Node) -> None:
        self._node.flow.edge(self._node, target, label=self._label, id=self._id, is_error=self._is_error)
        if self._is_error and self._node.data.get("error") is None:
            self._node.data["error"] = "branch"

    def __repr__(self) -> str:
        shown = f"[{self._label!r}]" if self._label is not None else ".on_error" if self._is_error else ""
        return f"<Outlet {self._node.id}{shown}>"


class Node(Connectable):
    """A node of a workflow. `a >> b` makes an edge, `a["true"] >> b` one from an outlet, `a.on_error >> b` an error
    edge.

    `out` is its output in expressions. `data` is the node as the document holds it.
    """

    __slots__ = ("data", "flow")

    def __init__(self, flow: Workflow, data: dict[str, Any]) -> None:
        self.flow = flow
        self.data = data

    if not TYPE_CHECKING:  # type checkers report unknown attributes themselves

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"a node has no attribute `{name}`; the field `{name}` of its output is `.out.{name}`",
                name=name,
            )

    @property
    def id(self) -> str:
        return str(self.data.get("id", ""))

    @property
    def type(self) -> str:
        return str(self.data.get("type", self.data.get("handler", "")))

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters as plain data; changes become part of the workflow."""
        name = "config" if "config" in self.data and "parameters" not in self.data else "parameters"
        found: dict[str, Any] = self.data.setdefault(name, {})
        return found

    @property
    def out(self) -> Ref[Any]:
        """The output of the node, as a reference."""
        return Ref(f"${self.id}")

    @property
    def on_error(self) -> Outlet:
        """The edge that is followed after the last failed attempt."""
        return Outlet(self, is_error=True)

    @property
    def fallback(self) -> Outlet:
        """The outlet of a switch that is taken if no rule matches."""
        return Outlet(self, label="fallback")

    def case(self, number: int) -> Outlet:
        """Return the outlet of a rule of a switch, counted from 0."""
        return Outlet(self, label=f"case_{number}")

    def named(self, id: str) -> Outlet:
        """Give the edge that leaves next an id: `a.named("retry-path") >> b`."""
        return Outlet(self, id=id)

    def set(self, **fields: Any) -> Node:
        """Change parameters; the value UNSET removes one."""
        for name, value in fields.items():
            if value is UNSET:
                self.parameters.pop(name, None)
            else:
                self.parameters[name] = plain(value)
        return self

    def __getitem__(self, label: str) -> Outlet:
        return Outlet(self, label=label)

    def __iter__(self) -> Any:
        raise TypeError(
            f'node `{self.id}` has no elements; its output is `.out`, its outlets are `["label"]`'
        )

    def _leave(self, target: Node) -> None:
        self.flow.edge(self, target)

    def __rrshift__(self, sources: Any) -> Node:
        for each in sources if isinstance(sources, list | tuple) else [sources]:
            if not isinstance(each, Connectable):
                raise TypeError(f"an edge leaves a node or an outlet, not {type(each).__name__}")
            each._leave(self)
        return self

    def __repr__(self) -> str:
        return f"<Node {self.id}: {self.type}>"


class Split(Node):
    """A `split` node. As a `with` block it gives the item, and `body` lists the nodes made inside."""

    __slots__ = ("_token", "body")

    def __init__(self, flow: Workflow, data: dict[str, Any]) -> None:
        super().__init__(flow, data)
        self.body: list[Node] = []
        self._token: Any = None

    def __enter__(self) -> Ref[Any]:
        self._token = SPLITS.set((*SPLITS.get(), self))
        return Ref("$item")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        SPLITS.reset(self._token)


class Edge:
    """An edge as the workflow has it. `id` is None if it is generated."""

    __slots__ = ("dst", "id", "is_error", "label", "src")

    def __init__(self, src: str, dst: str, label: str | None, is_error: bool, id: str | None) -> None:
        self.src = src
        self.dst = dst
        self.label = label
        self.is_error = is_error
        self.id = id

    def __repr__(self) -> str:
        shown = f"[{self.label}]" if self.label else ""
        return f"<Edge {self.src}{shown} >> {self.dst}>"


def _nodes(target: Any) -> Sequence[Node]:
    found = target if isinstance(target, list | tuple) else [target]
    for each in found:
        if not isinstance(each, Node):
            hint = "; an outlet can only be on the left" if isinstance(each, Outlet) else ""
            raise TypeError(f"an edge leads to a node, not {type(each).__name__}{hint}")
    return found


def open_workflow(what: str) -> Workflow:
    """Return the workflow whose `with` block is open."""
    found = OPEN.get()
    if not found:
        raise RuntimeError(f"{what} is made inside of a workflow: write `with flow:` around it")
    return found[-1]


def place(
    type: str,
    id: str,
    parameters: Mapping[str, Any],
    common: Mapping[str, Any],
    *,
    expressions: Sequence[str] = (),
    make: Callable[[Workflow, dict[str, Any]], Node] = Node,
) -> Any:
    """Add a node to the open workflow. `expressions` are the parameters that are one expression as a whole."""
    flow = open_workflow(f"node `{id}`")
    unknown = common.keys() - COMMON
    if unknown:
        name = sorted(unknown)[0]
        raise TypeError(f"{type}() has no parameter `{name}`; see help({type})")
    data: dict[str, Any] = {"id": id, "type": type}
    given = {
        name: plain(value, expression=name in expressions)
        for name, value in parameters.items()
        if value is not UNSET
    }
    fields = {name: _field(value) for name, value in common.items()}
    if "name" in fields:
        data["name"] = fields.pop("name")
    if given:
        data["parameters"] = given
    data.update(fields)
    return flow.add(make(flow, data))


def _field(value: Any) -> Any:
    return value.plain() if isinstance(value, Retry) else plain(value)


def node(id: str, type: str, /, parameters: Mapping[str, Any] | None = None, **common: Any) -> Node:
    """Add a node of any type to the open workflow, with its parameters as they stand in the document."""
    made: Node = place(type, id, parameters or {}, common)
    return made


def _place_custom(kind: Any, id: str, keywords: Mapping[str, Any]) -> Node:
    """Add a node of a custom type to the open workflow. Keywords that its function takes are parameters; a field of the
    node with the same name ends in an underscore."""
    flow = open_workflow(f"node `{id}`")
    given = kind.parameters.__struct_fields__
    parameters = {name: value for name, value in keywords.items() if name in given}
    common = {
        name.removesuffix("_") if name.removesuffix("_") in given else name: value
        for name, value in keywords.items()
        if name not in given
    }
    unknown = common.keys() - COMMON
    if unknown:
        listed = ", ".join(f"`{name}`" for name in given) or "none"
        raise TypeError(
            f"`{kind.type.name}` has no parameter `{sorted(unknown)[0]}`; its parameters: {listed}"
        )
    missing = [each for each in kind.type.schema.get("required", ()) if each not in parameters]
    if missing:
        raise TypeError(f"`{kind.type.name}` needs the parameter `{missing[0]}`")
    whole = [name for name, each in kind.type.kinds.items() if each in ("expression", "element")]
    made: Node = place(kind.type.name, id, parameters, common, expressions=whole)
    flow.register(kind)
    return made


register_placer(_place_custom, lambda: bool(OPEN.get()))
