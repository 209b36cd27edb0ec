"""Operations on workflows that are imported on first use: add tasks, compose workflows, deploy, load a Python file with
the comments that stand at its nodes and edges.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rune.build.code_check import check_code
from rune.build.expressions import Expr, plain
from rune.build.graph import LOADING, Comment, Node, comment_text
from rune.core.definition.parser import parse_data
from rune.core.definition.strict_json import Decoded, walk
from rune.core.expr import ExpressionSyntaxError, ExpressionSyntaxErrors, Names, compile_template
from rune.core.expr.expression import compile_expression
from rune.core.plan.compiler import names_of
from rune.core.plan.graph import ancestors, build_graph
from rune.documents.textedit.actions import renamed, with_edge_ids
from rune.errors import InvalidDocumentError, RuneError
from rune.nodes.custom import NodeContext, define_kind

if TYPE_CHECKING:
    from rune.build.flow import Workflow


def load_python(path: Path) -> Workflow:
    """Execute a Python file and return the workflow it makes: `flow`, or the only one."""
    source = path.read_text(encoding="utf-8")
    sys.path.insert(0, str(path.resolve().parent))
    try:
        return load_source(source, str(path), name=path.stem)
    finally:
        sys.path.remove(str(path.resolve().parent))


def load_declaration(path: Path) -> Workflow:
    """Return the workflow of a Python file that does nothing else than declare it; raise ForeignCodeError before
    executing any other file. Modules beside the file are not imported."""
    source = path.read_text(encoding="utf-8")
    check_code(source)
    return load_source(source, str(path), name=path.stem)


def load_source(source: str, filename: str = "<workflow>", *, name: str = "workflow") -> Workflow:
    """Execute Python code and return the workflow it makes, with its comments."""
    token = LOADING.set(filename)
    try:
        flow = build_source(source, filename, name=name)
    finally:
        LOADING.reset(token)
    _read_comments(flow, source)
    return flow


def build_source(source: str, filename: str = "<workflow>", *, name: str = "workflow") -> Workflow:
    """Execute Python code and return the workflow it makes."""
    from rune.build.flow import Workflow  # noqa: PLC0415 - it imports this module

    namespace: dict[str, Any] = {"__name__": f"__rune_{name}__", "__file__": filename}
    exec(compile(source, filename, "exec"), namespace)
    found = {id(each): each for each in namespace.values() if isinstance(each, Workflow)}
    flow = namespace.get("flow")
    if not isinstance(flow, Workflow):
        if len(found) != 1:
            raise ValueError(f"`{filename}` makes {len(found)} workflows; name the one to use `flow`")
        flow = next(iter(found.values()))
    return flow


def _read_comments(flow: Workflow, source: str) -> None:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    own_line: dict[int, str] = {}
    behind: dict[int, str] = {}
    for each in tokens:
        if each.type == tokenize.COMMENT:
            alone = not each.line[: each.start[1]].strip()
            (own_line if alone else behind)[each.start[0]] = comment_text(each.string)
    statements: dict[int, ast.stmt] = {}
    for node in ast.walk(ast.parse(source)):  # outer statements first
        if isinstance(node, ast.stmt):
            statements |= dict.fromkeys(range(node.lineno, (node.end_lineno or node.lineno) + 1), node)
    used: set[int] = set()
    comments = flow.comments
    line = 1
    while line in own_line:
        comments.header.append(own_line[line])
        used.add(line)
        line += 1
    for (kind, key), at in comments.lines.items():
        statement = statements.get(at)
        if statement is None:
            continue
        comment = Comment()
        above = statement.lineno - 1
        while above in own_line and above not in used:
            comment.lead.insert(0, own_line[above])
            used.add(above)
            above -= 1
        last = statement.end_lineno or at
        if last in behind and last not in used:
            comment.trailing = behind[last]
            used.add(last)
        if comment:
            owner: dict[Any, Comment] = comments.nodes if kind == "node" else comments.edges
            owner[key] = comment
    comments.others = sorted(
        (line, f"# {text}") for line, text in {**own_line, **behind}.items() if line not in used
    )


_REFERENCE = re.compile(r"\$([A-Za-z0-9_-]+)")


def add_task(flow: Workflow, function: Callable[..., Any], *, id: str | None, effectful: bool) -> Any:
    """Make a function a node type and add its node. Defaults that are expressions become parameters of the node."""
    signature = inspect.signature(function)
    wiring = {
        name: each.default for name, each in signature.parameters.items() if isinstance(each.default, Expr)
    }
    name = id or function.__name__
    importable = _is_importable(function)
    type_name = f"{function.__module__}.{name}" if importable else f"local.{_identifier(name)}"
    function.__signature__ = _without_defaults(signature, wiring, function)  # type: ignore[attr-defined]
    try:
        kind = define_kind(type_name, function, effectful=effectful)
    finally:
        del function.__signature__  # type: ignore[attr-defined]
    data: dict[str, Any] = {"id": _identifier(name), "type": type_name}
    if wiring:
        data["parameters"] = {key: plain(each) for key, each in wiring.items()}
    made = flow.add(Node(flow, data))
    flow.register(kind)
    if not importable:
        flow.register_task(made.id)
    for source in dict.fromkeys(source for each in wiring.values() for source in _sources(flow, each)):
        flow.edge(source, made)
    return function


def _is_importable(function: Callable[..., Any]) -> bool:
    """Return whether a worker can import the function: it is at the top of a module that is not a script."""
    return "<" not in function.__qualname__ and function.__module__ not in ("__main__", "builtins")


def _without_defaults(
    signature: inspect.Signature, wiring: Mapping[str, Any], function: Callable[..., Any]
) -> inspect.Signature:
    """Return the signature as the node type sees it: what the wiring gives is required."""
    found = list(signature.parameters.values())
    hints = inspect.get_annotations(function, eval_str=True)
    made: list[inspect.Parameter] = []
    for at, each in enumerate(found):
        if at == 0 and hints.get(each.name) is NodeContext:
            made.append(each.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD))
            continue
        if each.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
            raise TypeError(f"task `{function.__name__}`: `{each.name}` cannot be passed by name")
        if each.default is inspect.Parameter.empty:
            raise TypeError(
                f"task `{function.__name__}`: `{each.name}` has no default; write the reference to its value, "
                f"as in `{each.name}=fetch.out.body`"
            )
        default = inspect.Parameter.empty if each.name in wiring else each.default
        made.append(each.replace(kind=inspect.Parameter.KEYWORD_ONLY, default=default))
    return signature.replace(parameters=made)


def _sources(flow: Workflow, value: Expr) -> list[Node]:
    """Return the nodes that an expression refers to; the longest id that matches counts."""
    found: list[Node] = []
    for reference in _REFERENCE.findall(value._source):
        words = reference
        while words and words not in flow:
            words = words.rpartition("-")[0]
        if words:
            found.append(flow[words])
    return found


def _identifier(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "task"


def prefixed(document: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Return a document whose nodes and edges have ids with a prefix, in references too."""
    if not prefix:
        return document
    ids = {
        each["id"]: prefix + each["id"]
        for each in document.get("nodes") or []
        if isinstance(each, dict) and isinstance(each.get("id"), str)
    }
    made: dict[str, Any] = renamed(document, ids)
    edges = {
        each["id"]: prefix + each["id"]
        for each in made.get("edges") or []
        if isinstance(each, dict) and isinstance(each.get("id"), str)
    }
    made = with_edge_ids(made, edges)
    if "edges" in made:
        made["edges"] = [
            {**each, "id": edges[each["id"]]} if each.get("id") in edges else each for each in made["edges"]
        ]
    return made


def missing_edges(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the edges to add so that every node that is mentioned comes before the node that mentions it."""
    parsed = parse_data(Decoded(document))
    definition = parsed.definition
    if definition is None:
        raise InvalidDocumentError(parsed.problems)
    graph = build_graph([node.id for node in definition.nodes], definition.edges)
    before = ancestors(graph)
    names = names_of(definition)
    found: list[tuple[str, str]] = []
    for at, declared in enumerate(definition.nodes):
        for id in dict.fromkeys(_mentioned(declared.parameters, names)):
            source = graph.index.get(id)
            if source is not None and source != at and not before[at] >> source & 1:
                found.append((id, declared.id))
    return found


def _mentioned(parameters: Any, names: Names) -> Iterator[str]:
    """Yield the ids of the nodes that parameters refer to."""
    for path, value in walk(parameters):
        if not isinstance(value, str):
            continue
        try:
            whole = path == "expression"
            compiled = compile_expression(value, names) if whole else compile_template(value, names)
        except (ExpressionSyntaxError, ExpressionSyntaxErrors):
            continue
        yield from (each.root[1:] for each in compiled.references)


class UnknownTypesError(RuneError):
    """A workflow uses node types that no worker of the server has. `types` lists them."""

    code = "UNKNOWN_TYPE"

    def __init__(self, types: list[str], reason: str) -> None:
        super().__init__(f"{', '.join(f'`{each}`' for each in types)}: {reason}")
        self.types = types


def deploy(flow: Workflow, client: Any, note: str | None = None) -> Any:
    """Store a workflow as its next version, through a client of either kind; with AsyncClient, await the result."""
    local = [flow[each].type for each in flow.local_tasks if each in flow]
    if local:
        raise UnknownTypesError(local, "workers cannot import this function; move it to a module")
    if inspect.iscoroutinefunction(client.deploy):
        return _deploy_async(flow, client, note)
    _check_types(flow, client.node_types())
    return client.deploy(flow.to_dict(), workflow=flow.id, note=note)


async def _deploy_async(flow: Workflow, client: Any, note: str | None) -> Any:
    _check_types(flow, await client.node_types())
    return await client.deploy(flow.to_dict(), workflow=flow.id, note=note)


def _check_types(flow: Workflow, known: Iterable[Mapping[str, Any]]) -> None:
    names = {name for each in known for name in (each["type"], *each["aliases"])}
    missing = sorted({each.type for each in flow.nodes} - names)
    if missing:
        raise UnknownTypesError(missing, "no worker of the server has this node type; start one with --nodes")
