"""`rune convert` and `rune stubs`: workflows as YAML, JSON and Python, and typed constructors for custom node types."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rune.build.flow import Workflow
from rune.cli.arguments import Nodes, with_modules
from rune.cli.output import INVALID, VIOLATIONS, print_error, print_json, print_problems
from rune.core.definition.problems import Problem
from rune.errors import InvalidDocumentError, RuneError
from rune.settings import load_settings

_SUFFIXES = (".yaml", ".yml", ".json", ".py")


def convert(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Workflow: YAML, JSON or Python.")],
    target: Annotated[
        Path | None,
        typer.Argument(
            metavar="[TARGET]", help="File to write; its suffix decides the format. Default: stdout, YAML."
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 if the two files differ in meaning.")
    ] = False,
    report: Annotated[
        bool, typer.Option("--report", help="List the comments that are missing in the target.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Convert a workflow between YAML, JSON and Python.

    Only comments can get lost: those at nodes and edges are carried between YAML
    and Python, and --report lists the others. A Python file is executed. --check
    compares two files by their meaning and writes nothing.

    Examples:
      rune convert orders.yaml orders.py
      rune convert orders.py orders.yaml --report
      rune convert --check orders.yaml orders.py
    """
    flow = _load(source, as_json)
    if check:
        if target is None:
            raise typer.Exit(
                print_problems(
                    (_problem("`--check` compares two files; name the second one"),), as_json=as_json
                )
            )
        _compare(flow, _load(target, as_json), as_json)
        return
    try:
        text = _text(flow, target)
    except InvalidDocumentError as error:
        raise typer.Exit(print_problems(error.problems, as_json=as_json)) from None
    if target is None:
        typer.echo(text, nl=False)
    else:
        target.write_text(text, encoding="utf-8")
    lost = _lost(flow, target) if report else []
    if as_json:
        found = {"source": str(source), "target": str(target) if target else None, "lost_comments": lost}
        print_json(found) if target is not None else None
    elif report:
        for each in lost:
            typer.echo(f"{source}:{each['line']}: not carried: {each['text']}", err=True)
        typer.echo(f"{len(lost)} comment{'' if len(lost) == 1 else 's'} not carried", err=True)


def _load(path: Path, as_json: bool) -> Workflow:
    if path.suffix not in _SUFFIXES:
        problem = _problem(f"`{path}`: a workflow is a .yaml, .yml, .json or .py file")
        raise typer.Exit(print_problems((problem,), as_json=as_json))
    try:
        return Workflow.load(path)
    except OSError as error:
        problem = Problem(
            "", "UNREADABLE", f"`{path}` cannot be read: {(error.strerror or str(error)).lower()}"
        )
        raise typer.Exit(print_problems((problem,), as_json=as_json)) from None
    except Exception as error:
        # A Python file is the user's code and may raise anything.
        problem = _problem(f"`{path}` cannot be loaded: {type(error).__name__}: {error}")
        raise typer.Exit(print_problems((problem,), as_json=as_json)) from None


def _problem(message: str) -> Problem:
    return Problem("", "UNKNOWN_FORMAT", message)


def _text(flow: Workflow, target: Path | None) -> str:
    if target is None or target.suffix in (".yaml", ".yml"):
        return flow.to_yaml()
    if target.suffix == ".json":
        return flow.to_json()
    if target.suffix == ".py":
        return flow.to_python()
    raise InvalidDocumentError((_problem(f"`{target}`: write a .yaml, .yml, .json or .py file"),))


def _lost(flow: Workflow, target: Path | None) -> list[dict[str, Any]]:
    """Return the comments of the source that the target does not have."""
    if flow.keeps_text(target.suffix if target is not None else ".yaml"):
        return []
    found = [{"line": line, "text": text} for line, text in flow.comments.others]
    if target is not None and target.suffix == ".json":
        comments = flow.comments
        owned = [*comments.nodes.values(), *comments.edges.values()]
        texts = [*comments.header, *(text for each in owned for text in (*each.lead, each.trailing) if text)]
        found += [{"line": 0, "text": f"# {text}"} for text in texts]
    return found


def _compare(one: Workflow, two: Workflow, as_json: bool) -> None:
    try:
        changes = one.diff(two)
        same = one.hash == two.hash
    except InvalidDocumentError as error:
        raise typer.Exit(print_problems(error.problems, as_json=as_json)) from None
    if as_json:
        listed = [{"what": each.what, "id": each.id, "kind": each.kind} for each in changes]
        print_json({"same": same, "hash": [one.hash, two.hash], "changes": listed})
    elif same:
        typer.echo(f"same: {one.hash[:12]}")
    else:
        for each in changes:
            typer.echo(f"{each.kind} {each.what} {each.id}".rstrip())
    if not same:
        raise typer.Exit(VIOLATIONS)


def stubs(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder for the Python files.")
    ],
    modules: Nodes = None,
) -> None:
    """Write typed constructors for custom node types.

    Writes a Python file for each module, with one function per node type, like
    those of rune.build for the built-in types. Editors then complete and check the
    parameters.

    Examples:
      rune stubs --nodes acme_nodes -o flows
    """
    from rune.build.constructors import constructors  # noqa: PLC0415 - only this command needs it
    from rune.nodes.registry import load_module  # noqa: PLC0415

    names = with_modules(load_settings(), tuple(modules or ())).nodes
    if not names:
        problem = Problem("nodes", "BAD_NODE_MODULE", "no module is named", "use --nodes MODULE")
        raise typer.Exit(print_problems((problem,), as_json=False))
    try:
        found = {name: load_module(name) for name in names}
    except RuneError as error:
        raise typer.Exit(print_error(error, as_json=False)) from None
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name, kinds in found.items():
            target = output / f"{name.replace('.', '_')}_build.py"
            title = f"Constructors of the node types of {name}: written by `rune stubs --nodes {name}`."
            target.write_text(constructors(kinds, title), encoding="utf-8")
            typer.echo(str(target))
    except OSError as error:
        typer.echo(f"{output} cannot be written: {error.strerror}", err=True)
        raise typer.Exit(INVALID) from None
