"""`rune convert`, `rune stubs` and `rune import`: workflows as YAML, JSON and Python, typed constructors for custom
node types, and workflows of other tools, with a report.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console

from rune.build.code_check import ForeignCodeError
from rune.build.flow import Workflow
from rune.build.operations import load_declaration
from rune.cli.arguments import Nodes, with_modules, without_file_modules
from rune.cli.lines import line_of
from rune.cli.output import INVALID, VIOLATIONS, count, print_error, print_json, print_problems
from rune.core.definition.problems import ALIAS_REFUSED, TAG_REFUSED, Problem
from rune.core.limits import LIMITS
from rune.documents.importers import Import, import_document
from rune.documents.importers.draft import FORMATS, STATUSES, Entry
from rune.documents.loader import load_document
from rune.documents.yaml import to_yaml
from rune.errors import InvalidDocumentError, RuneError
from rune.nodes.registry import full_registry
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
    execute: Annotated[
        bool,
        typer.Option(
            "--execute", help="With --check: execute a Python file that does more than declare a workflow."
        ),
    ] = False,
    report: Annotated[
        bool, typer.Option("--report", help="List the comments that are missing in the target.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Convert a workflow between YAML, JSON and Python.

    Only comments can get lost: those at nodes and edges are carried between YAML
    and Python, and --report lists the others. A Python SOURCE is executed, like a
    script. --check compares two files by their meaning and writes nothing; it
    reads a Python file before executing it, and refuses one that does more than
    declare a workflow, unless --execute is given.

    Examples:
      rune convert orders.yaml orders.py
      rune convert orders.py orders.yaml --report
      rune convert --check orders.yaml orders.py
    """
    flow = _load(source, as_json, vouched=check and not execute)
    if check:
        if target is None:
            raise typer.Exit(
                print_problems(
                    (_problem("`--check` compares two files; name the second one"),), as_json=as_json
                )
            )
        _compare(flow, _load(target, as_json, vouched=not execute), as_json)
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


def _load(path: Path, as_json: bool, *, vouched: bool) -> Workflow:
    """Load a workflow. `vouched`: do not execute a Python file that does more than declare one."""
    if path.suffix not in _SUFFIXES:
        problem = _problem(f"`{path}`: a workflow is a .yaml, .yml, .json or .py file")
        raise typer.Exit(print_problems((problem,), as_json=as_json))
    try:
        if vouched and path.suffix == ".py":
            return load_declaration(path)
        flow = Workflow.load(path)
    except ForeignCodeError as error:
        message = f"`{path}` is not executed: {error}"
        hint = "read the file, then pass --execute to execute it"
        problem = Problem("", "UNKNOWN_FORMAT", message, hint, line=error.line)
        raise typer.Exit(print_problems((problem,), as_json=as_json)) from None
    except OSError as error:
        problem = Problem(
            "", "UNREADABLE", f"`{path}` cannot be read: {(error.strerror or str(error)).lower()}"
        )
        raise typer.Exit(print_problems((problem,), as_json=as_json)) from None
    except Exception as error:
        # A Python file is the user's code and may raise anything.
        problem = _problem(f"`{path}` cannot be loaded: {type(error).__name__}: {error}")
        raise typer.Exit(print_problems((problem,), as_json=as_json)) from None
    # Text that no reader of workflows takes is not written again, where another program may take it.
    found = load_document(path).problems if path.suffix != ".py" else ()
    refused = tuple(each for each in found if each.code in {TAG_REFUSED, ALIAS_REFUSED})
    if refused:
        raise typer.Exit(print_problems(refused, as_json=as_json))
    return flow


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


_STYLES = {
    "carried": "bold green",
    "changed": "bold cyan",
    "approximated": "bold yellow",
    "by_hand": "bold red",
}


def import_workflow(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="Document of another tool, JSON or YAML; `-` reads standard input."
        ),
    ],
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="FORMAT", help=f"One of {', '.join(FORMATS)}. Default: detected."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o", "--output", metavar="OUT", help="File for the workflow. Default: standard output."
        ),
    ] = None,
    report: Annotated[
        str | None, typer.Option("--report", metavar="OUT", help="File for the report, as JSON.")
    ] = None,
    stubs: Annotated[
        str | None,
        typer.Option(
            "--stubs",
            metavar="OUT",
            help="Import tasks of a state machine as custom nodes and write a Python module with them.",
        ),
    ] = None,
    tests: Annotated[
        str | None,
        typer.Option(
            "--tests",
            metavar="OUT",
            help="File for a test whose mocks are the pinned data of an n8n export, for `rune test`.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the workflow and the report as one JSON document.")
    ] = False,
) -> None:
    """Import a workflow of another tool and report what became of every element.

    Exit codes: 0 everything was carried over; 1 something was changed or
    approximated, or has to be completed by hand; 2 the document cannot be
    imported.

    Example: rune import workflow.json -o orders.yaml --report report.json
    """
    try:
        # The document, and the `rune.toml` beside it, may come from anywhere.
        catalogue = full_registry(without_file_modules(load_settings()).nodes).catalogue
        found = import_document(
            _read(file), catalogue, format=source, name=_name(file), stubs=stubs is not None
        )
        _write_files(found, output=output, report=report, stubs=stubs, tests=tests)
    except RuneError as error:
        raise typer.Exit(_refuse(error, as_json)) from None
    if as_json:
        typer.echo(_encode({"document": found.document, **_described(found)}))
    else:
        if output is None:
            sys.stdout.write(_imported_text(found.document, None))
            sys.stdout.flush()
        _print(file, found)
        if tests and not found.test:
            typer.echo(f"{tests} was not written: the document has no pinned data", err=True)
    if not found.report.complete:
        raise typer.Exit(1)


def _write_files(
    found: Import, *, output: str | None, report: str | None, stubs: str | None, tests: str | None
) -> None:
    """Write the workflow, the report, the stubs and the test to the files that were named."""
    if output:
        _write(output, _imported_text(found.document, output))
    if report:
        _write(report, _encode(_described(found)))
    if stubs:
        _write(stubs, found.stubs)
    if tests and found.test:
        _write(tests, _imported_text(_test(found, output, tests), tests))


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read(LIMITS.definition_bytes + 1)
    try:
        with Path(file).open("rb") as opened:
            return opened.read(LIMITS.definition_bytes + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RuneError(f"`{file}` cannot be read: {reason}", code="UNREADABLE") from None


def _name(file: str) -> str:
    return "" if file == "-" else Path(file).stem


def _imported_text(document: dict[str, Any], output: str | None) -> str:
    if output is not None and output.endswith(".json"):
        return _encode(document) + "\n"
    return to_yaml(document)


def _write(target: str, text: str) -> None:
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RuneError(f"cannot write {target}: {reason}", code="UNWRITABLE") from None


def _test(found: Import, output: str | None, tests: str) -> dict[str, Any]:
    """Return the test of an import, which names the file of its workflow or has the document itself."""
    case, *rest = found.test.items()
    if output is None:
        return dict([case, ("document", found.document), *rest])
    workflow = os.path.relpath(output, Path(tests).parent)
    return dict([case, ("workflow", Path(workflow).as_posix()), *rest])


def _described(found: Import) -> dict[str, Any]:
    """Return the report as plain data."""
    report = found.report
    return {
        "format": report.format,
        "complete": report.complete,
        "counts": report.counts(),
        "entries": [msgspec.to_builtins(each) for each in report.entries],
        "problems": [msgspec.to_builtins(each) for each in report.problems],
    }


def _encode(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _refuse(error: RuneError, as_json: bool) -> int:
    problems = (
        [msgspec.to_builtins(each) for each in error.problems]
        if isinstance(error, InvalidDocumentError)
        else [{"path": "", "code": error.code, "message": error.message, "hint": "", "severity": "error"}]
    )
    if as_json:
        typer.echo(_encode({"status": "invalid", "problems": problems}))
        return 2
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for each in problems:
        hint = f"  {each['hint']}" if each["hint"] else ""
        console.print(
            line_of(("error ", "bold red"), f"{each['path'] or 'document'}: {each['message']}{hint}")
        )
    return 2


def _print(file: str, found: Import) -> None:
    """Print what was not carried, then a summary, on standard error."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    report = found.report
    for each in report.entries:
        if each.status != "carried":
            _print_entry(console, each)
    for problem in report.problems:
        style = "bold red" if problem.severity == "error" else "bold yellow"
        line = f"{problem.path or 'document'}: {problem.message} [{problem.code}]"
        console.print(line_of((f"{problem.severity} ", style), line))
    counts = report.counts()
    summed = ", ".join(f"{counts[each]} {each.replace('_', ' ')}" for each in STATUSES if counts[each])
    nodes = count(len(found.document["nodes"]), "node")
    console.print(line_of((f"{file}", "bold"), f" ({report.format}): {nodes}; elements: {summed}"))


def _print_entry(console: Console, entry: Entry) -> None:
    where = f"{entry.source} → {entry.target}" if entry.target else entry.source
    if entry.node:
        where = f"{entry.node} ({where})"
    console.print(
        line_of(
            (f"{entry.status.replace('_', ' ')} ", _STYLES[entry.status]),
            (f"{where}: ", "bold"),
            entry.message,
        )
    )
    if entry.hint:
        console.print(line_of((f"        {entry.hint}", "dim")))
