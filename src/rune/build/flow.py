"""The workflow: a document that Python builds, loads, checks, writes and runs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from rune.build.expressions import Ref, plain
from rune.build.graph import OPEN, SPLITS, Comments, Edge, Node, Split
from rune.build.settings import Settings

if TYPE_CHECKING:
    from rune.build.results import Result
    from rune.build.writer import SourceDocument
    from rune.core.definition.diff import Change
    from rune.core.definition.model import Definition
    from rune.core.definition.parser import Parsed
    from rune.core.definition.problems import Problem

F = TypeVar("F", bound=Callable[..., Any])

_TOP_FIELDS = ("name", "inputs", "settings", "metadata", "notes")


class Workflow:
    """A workflow. Inside of `with flow:`, the functions of `rune.build` add nodes to it.

    `data` is the document as plain data; everything else is derived from it. Two workflows are equal if their canonical
    forms are.
    """

    __hash__ = None  # type: ignore[assignment]  # a workflow changes while it is built

    def __init__(
        self,
        id: str,
        *,
        name: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        settings: Settings | Mapping[str, Any] | None = None,
        metadata: Any = None,
        notes: Any = None,
    ) -> None:
        self.data: dict[str, Any] = {"id": id}
        if isinstance(settings, Settings):
            settings = settings.plain()
        for field, value in zip(_TOP_FIELDS, (name, inputs, settings, metadata, notes), strict=True):
            if value is not None:
                self.data[field] = plain(value)
        self.data["nodes"] = []
        self.data["edges"] = []
        self.comments = Comments()
        self._source: SourceDocument | None = None
        self._nodes: list[Node] = []
        self._ids: set[str] = set()
        self._types: dict[str, Any] = {}
        self._tasks: list[str] = []

    @property
    def id(self) -> str:
        return str(self.data.get("id", ""))

    # References

    @property
    def trigger(self) -> Ref[Any]:
        """The start payload."""
        return Ref("$trigger")

    @property
    def item(self) -> Ref[Any]:
        """The item of the innermost split."""
        return Ref("$item")

    @property
    def index(self) -> Ref[int]:
        """The position of the item of the innermost split."""
        return Ref("$index")

    @property
    def error(self) -> Ref[Any]:
        """The error that led here."""
        return Ref("$error")

    @property
    def execution(self) -> Ref[Any]:
        """The execution: its `id`."""
        return Ref("$execution")

    @property
    def payload(self) -> Ref[Any]:
        """The payload that led here, `$json`."""
        return Ref("$json")

    # Building

    def __enter__(self) -> Self:
        OPEN.set((*OPEN.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        OPEN.set(OPEN.get()[:-1])

    def add(self, node: Node) -> Node:
        """Add a node that was made for this workflow."""
        if node.id in self._ids:
            raise ValueError(f"the workflow has a node `{node.id}` already")
        self.data.setdefault("nodes", []).append(node.data)
        self._nodes.append(node)
        self._ids.add(node.id)
        self.comments.place_node(node.id)
        for split in SPLITS.get():
            if split.flow is self and split is not node:
                split.body.append(node)
        return node

    def edge(
        self,
        src: Node | str,
        dst: Node | str,
        *,
        label: str | None = None,
        id: str | None = None,
        is_error: bool = False,
    ) -> None:
        """Add an edge, as `a >> b` does."""
        for each in (src, dst):
            if isinstance(each, Node) and each.flow is not self:
                raise ValueError(
                    f"node `{each.id}` belongs to another workflow; copy that one in with flow.use()"
                )
        data: dict[str, Any] = {} if id is None else {"id": id}
        data["src"] = src.id if isinstance(src, Node) else src
        data["dst"] = dst.id if isinstance(dst, Node) else dst
        if label is not None:
            data["label"] = label
        if is_error:
            data["is_error"] = True
        edges = self.data.setdefault("edges", [])
        edges.append(data)
        self.comments.place_edge(len(edges) - 1)

    def remove(self, node: Node | str) -> None:
        """Remove a node and its edges."""
        gone = node.id if isinstance(node, Node) else node
        self[gone]
        self.data["nodes"] = [each for each in self.data["nodes"] if not _is_node(each, gone)]
        self.data["edges"] = [
            each for each in self.data.get("edges", []) if gone not in (each.get("src"), each.get("dst"))
        ]
        self._nodes = [each for each in self._nodes if each.id != gone]
        self._ids.discard(gone)

    def rename(self, id: str, to: str) -> None:
        """Rename a node, its edges and every reference to it."""
        from rune.documents.textedit.actions import renamed  # noqa: PLC0415 - needs the compiler of expressions

        self[id]
        self._replace(renamed(self.data, {id: to}))

    def use(self, other: Workflow, *, prefix: str = "") -> dict[str, Node]:
        """Copy the nodes and edges of another workflow into this one; return the copies by their ids there."""
        from rune.build.operations import prefixed  # noqa: PLC0415 - see `rename`

        document = prefixed(other.to_dict(), prefix)
        made: dict[str, Node] = {}
        for old, data in zip(other._nodes, document["nodes"], strict=True):
            made[old.id] = self.add(type(old)(self, data))
        self.data.setdefault("edges", []).extend(document.get("edges", ()))
        self._types.update(other._types)
        self._tasks.extend(other._tasks)
        return made

    def connect_references(self) -> list[Edge]:
        """Add an edge from each node whose output another one mentions without being reachable; return those added."""
        from rune.build.operations import missing_edges  # noqa: PLC0415 - see `rename`

        added = [Edge(src, dst, None, False, None) for src, dst in missing_edges(self.data)]
        for each in added:
            self.edge(each.src, each.dst)
        return added

    @overload
    def task(self, function: F, /) -> F: ...

    @overload
    def task(self, *, id: str | None = None, effectful: bool = True) -> Callable[[F], F]: ...

    def task(
        self, function: Callable[..., Any] | None = None, *, id: str | None = None, effectful: bool = True
    ) -> Any:
        """Make a function a node type of its own and place it here: defaults that are references are its parameters,
        and edges lead from the nodes they name."""
        from rune.build.operations import add_task  # noqa: PLC0415 - needs the node types

        def decorate(function: Callable[..., Any]) -> Any:
            return add_task(self, function, id=id, effectful=effectful)

        return decorate if function is None else decorate(function)

    def register(self, kind: Any) -> None:
        """Remember a custom node type that this workflow uses, for `check` and `run`."""
        self._types[kind.type.name] = kind

    def register_task(self, name: str) -> None:
        """Remember a function that workers cannot import."""
        self._tasks.append(name)

    @property
    def local_tasks(self) -> list[str]:
        """The ids of tasks whose functions workers cannot import."""
        return list(self._tasks)

    # Content

    @property
    def nodes(self) -> list[Node]:
        """The nodes, in the order of the document."""
        return list(self._nodes)

    @property
    def edges(self) -> list[Edge]:
        """The edges, those of `dependencies` after the others."""
        definition = self.parse().definition
        given = {each.get("id") for each in self.data.get("edges") or [] if isinstance(each, dict)}
        return [
            Edge(each.src, each.dst, each.label, each.is_error, each.id if each.id in given else None)
            for each in (definition.edges if definition is not None else ())
        ]

    def __getitem__(self, id: str) -> Node:
        for each in self._nodes:
            if each.id == id:
                return each
        from rune.core.definition.problems import did_you_mean  # noqa: PLC0415 - needed for an error only

        raise KeyError(
            f"the workflow has no node `{id}`: {did_you_mean(id, [each.id for each in self._nodes])}"
        )

    def __contains__(self, id: object) -> bool:
        return any(each.id == id for each in self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def __repr__(self) -> str:
        return f"<Workflow {self.id}: {len(self._nodes)} nodes>"

    def _replace(self, data: dict[str, Any]) -> None:
        """Take over other content. Nodes that stay at their position stay the same objects."""
        found = data.get("nodes")
        entries = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
        kept = {id(each.data): each for each in self._nodes}
        old = self._nodes
        self.data = data
        self._nodes = []
        for at, each in enumerate(entries):
            node = kept.get(id(each)) or (old[at] if len(old) == len(entries) else None)
            if node is None:
                node = (Split if each.get("type", each.get("handler")) == "split" else Node)(self, each)
            node.data = each
            self._nodes.append(node)
        self._ids = {each.id for each in self._nodes}

    # Meaning

    def parse(self) -> Parsed:
        """Parse the document."""
        from rune.core.definition.parser import parse_data  # noqa: PLC0415 - building does not need it
        from rune.core.definition.strict_json import Decoded, decode_plain  # noqa: PLC0415

        if self._source is not None and self._source.is_unchanged(self.data):
            return parse_data(Decoded(copy.deepcopy(self._source.value), self._source.problems))
        return parse_data(decode_plain(self.data))

    @property
    def definition(self) -> Definition:
        """The definition: the canonical form as an object. Raises InvalidDocumentError if it cannot be parsed."""
        from rune.errors import InvalidDocumentError  # noqa: PLC0415

        parsed = self.parse()
        if parsed.definition is None or parsed.refused:
            raise InvalidDocumentError(parsed.problems)
        return parsed.definition

    @property
    def hash(self) -> str:
        """The hash of the canonical form, which identifies the version of a workflow."""
        from rune.core.definition.model import content_hash  # noqa: PLC0415

        return content_hash(self.definition)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Workflow):
            return NotImplemented
        from rune.core.definition.model import canonical  # noqa: PLC0415

        one, two = self.parse(), other.parse()
        if one.definition is None or two.definition is None or one.refused or two.refused:
            return self.data == other.data
        return canonical(one.definition) == canonical(two.definition)

    def check(self, *, nodes: Sequence[str] = ()) -> list[Problem]:
        """Return all problems and warnings. `nodes` are modules with custom node types."""
        from rune.documents.loader import check_document  # noqa: PLC0415

        return list(check_document(self.parse(), self.registry(nodes).catalogue).problems)

    def registry(self, nodes: Sequence[str] = ()) -> Any:
        """Return the node types that this workflow can use: built-in ones, installed ones, those of modules, and those
        that were placed in it."""
        from rune.nodes.registry import full_registry  # noqa: PLC0415 - imports the HTTP client

        found = full_registry(nodes)
        return found.extended(kind for name, kind in self._types.items() if name not in found)

    def diff(self, other: Workflow) -> tuple[Change, ...]:
        """Return what changes from this workflow to another one."""
        import msgspec  # noqa: PLC0415

        from rune.core.definition.diff import difference  # noqa: PLC0415

        before, after = (msgspec.to_builtins(each.definition) for each in (self, other))
        return difference(before, after)

    # Text

    def to_dict(self) -> dict[str, Any]:
        """Return the document as plain data."""
        return copy.deepcopy(self.data)

    def to_json(self) -> str:
        """Return the document as JSON. A document that was loaded from JSON keeps its layout."""
        from rune.build.writer import to_json  # noqa: PLC0415

        return to_json(self.data, self._source)

    def to_yaml(self) -> str:
        """Return the document as YAML. A document that was loaded from YAML keeps its layout and comments."""
        from rune.build.writer import to_yaml  # noqa: PLC0415

        return to_yaml(self.data, self._source, self.comments)

    def to_python(self) -> str:
        """Return the Python code that builds this workflow."""
        from rune.build.writer import to_python  # noqa: PLC0415

        return to_python(self)

    def keeps_text(self, suffix: str) -> bool:
        """Return whether writing in a format keeps the text that the workflow was loaded from."""
        format = "json" if suffix == ".json" else "yaml" if suffix in (".yaml", ".yml") else "python"
        return self._source is not None and self._source.format == format

    def save(self, path: Path | str) -> None:
        """Write the document; the suffix of the file decides between YAML, JSON and Python."""
        target = Path(path)
        writers = {
            ".yaml": self.to_yaml,
            ".yml": self.to_yaml,
            ".json": self.to_json,
            ".py": self.to_python,
        }
        if target.suffix not in writers:
            raise ValueError(f"`{target.name}`: a workflow is written as .yaml, .yml, .json or .py")
        target.write_text(writers[target.suffix](), encoding="utf-8")

    @classmethod
    def load(cls, source: Path | str | Mapping[str, Any]) -> Workflow:
        """Load a workflow from a file, a text or plain data. An invalid one is loaded too; `check` lists its problems.

        A text with a line break or a brace is a document, any other one a path. A Python file is executed.
        """
        if isinstance(source, Mapping):
            return cls._of(copy.deepcopy(dict(source)))
        if isinstance(source, str) and ("\n" in source or source.lstrip().startswith("{")):
            return cls.from_text(source)
        path = Path(source)
        if path.suffix == ".py":
            from rune.build.operations import load_python  # noqa: PLC0415

            return load_python(path)
        return cls.from_text(path.read_text(encoding="utf-8-sig"), path.suffix.lstrip("."))

    @classmethod
    def from_text(cls, text: str, suffix: str | None = None) -> Workflow:
        """Load a workflow from YAML or JSON."""
        from rune.build.writer import SourceDocument  # noqa: PLC0415

        source = SourceDocument.read(text, suffix)
        flow = cls._of(copy.deepcopy(source.data))
        flow._source = source
        flow.comments = source.comments()
        return flow

    @classmethod
    def _of(cls, data: dict[str, Any]) -> Workflow:
        flow = cls(str(data.get("id", "")))
        flow._replace(data)
        return flow

    # Running and deploying

    def run(
        self,
        input: Any = None,
        *,
        home: Path | str | None = None,
        nodes: Sequence[str] = (),
        fake_time: bool = False,
        mocks: Mapping[str, Any] | None = None,
        seconds: float | None = None,
    ) -> Result:
        """Run the workflow here and now, in a temporary folder or in `home`, and wait for its end.

        `fake_time` skips waits. `mocks` are outputs by node id; these nodes are not called. Works inside of a running
        event loop too.
        """
        from rune.build.local import run  # noqa: PLC0415 - imports the engine

        return run(self, input, home=home, nodes=nodes, fake_time=fake_time, mocks=mocks, seconds=seconds)

    async def arun(
        self,
        input: Any = None,
        *,
        home: Path | str | None = None,
        nodes: Sequence[str] = (),
        fake_time: bool = False,
        mocks: Mapping[str, Any] | None = None,
        seconds: float | None = None,
    ) -> Result:
        """Run the workflow in the running event loop; see `run`."""
        from rune.build.local import arun  # noqa: PLC0415 - see above

        return await arun(
            self, input, home=home, nodes=nodes, fake_time=fake_time, mocks=mocks, seconds=seconds
        )

    def deploy(self, client: Any, *, note: str | None = None) -> Any:
        """Store the workflow on a server as its next version, with a note. Raises UnknownTypesError if no worker has a
        type that it uses."""
        from rune.build.operations import deploy  # noqa: PLC0415

        return deploy(self, client, note)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the drawing that notebooks show."""
        from rune.build.results import picture  # noqa: PLC0415 - only notebooks need it

        return picture(self)


def _is_node(data: Any, id: str) -> bool:
    return isinstance(data, dict) and data.get("id") == id
