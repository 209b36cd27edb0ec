"""Load a workflow from a Python file, with the comments that stand at its nodes and edges."""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rune.build.graph import LOADING, Comment, comment_text

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


def load_source(source: str, filename: str = "<workflow>", *, name: str = "workflow") -> Workflow:
    """Execute Python code and return the workflow it makes."""
    from rune.build.flow import Workflow  # noqa: PLC0415 - it imports this module

    namespace: dict[str, Any] = {"__name__": f"__rune_{name}__", "__file__": filename}
    token = LOADING.set(filename)
    try:
        exec(compile(source, filename, "exec"), namespace)
    finally:
        LOADING.reset(token)
    found = {id(each): each for each in namespace.values() if isinstance(each, Workflow)}
    flow = namespace.get("flow")
    if not isinstance(flow, Workflow):
        if len(found) != 1:
            raise ValueError(f"`{filename}` makes {len(found)} workflows; name the one to use `flow`")
        flow = next(iter(found.values()))
    _read_comments(flow, source)
    return flow


def _read_comments(flow: Workflow, source: str) -> None:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    own_line: dict[int, str] = {}
    behind: dict[int, str] = {}
    for each in tokens:
        if each.type == tokenize.COMMENT:
            alone = not each.line[: each.start[1]].strip()
            (own_line if alone else behind)[each.start[0]] = comment_text(each.string)
    statements = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    used: set[int] = set()
    comments = flow.comments
    line = 1
    while line in own_line:
        comments.header.append(own_line[line])
        used.add(line)
        line += 1
    for (kind, key), at in comments.lines.items():
        statement = min(
            (each for each in statements if each.lineno <= at <= (each.end_lineno or at)),
            key=lambda each: (each.end_lineno or 0) - each.lineno,
            default=None,
        )
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
