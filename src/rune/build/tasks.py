"""Functions that are a custom node type and its only node: `@flow.task`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rune.build.expressions import Expr, plain
from rune.build.graph import Node
from rune.nodes.custom import NodeContext, kind_of, node

if TYPE_CHECKING:
    from rune.build.flow import Workflow

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
        decorated = node(type_name, effectful=effectful)(function)
    finally:
        del function.__signature__  # type: ignore[attr-defined]
    data: dict[str, Any] = {"id": _identifier(name), "type": type_name}
    if wiring:
        data["parameters"] = {key: plain(each) for key, each in wiring.items()}
    made = flow.add(Node(flow, data))
    flow.register(kind_of(decorated))
    if not importable:
        flow.register_task(made.id)
    for source in dict.fromkeys(source for each in wiring.values() for source in _sources(flow, each)):
        flow.edge(source, made)
    return decorated


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
