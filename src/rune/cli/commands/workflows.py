"""`rune workflows`: stored definitions, their versions and aliases.

`rune deploy`: keep a definition under the name of its workflow.

Stored definitions on the screen: versions, one definition in full, two side by side.

The difference between two definitions, as text.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rune.cli.arguments import Burst, Lifted, Rate, Running
from rune.cli.backend import definition_of, label, version_document
from rune.cli.output import Cell, clean, count, moment, paint, print_json, print_table
from rune.core.definition.diff import Change, Field
from rune.ports.workflows import Alias, Version, choose

if TYPE_CHECKING:
    from rune.core.definition.problems import Problem
    from rune.ports.workflows import WorkflowEntry
    from rune.runtime.queries.reader import ExecutionReader
    from rune.settings import Settings

workflows = typer.Typer(add_completion=False)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
All = Annotated[bool, typer.Option("--all", help="Those that were removed too.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A workflow.")]


@workflows.callback(invoke_without_command=True)
def _workflows(context: typer.Context, everything: All = False, as_json: Json = False) -> None:
    """List stored workflows; show, compare, restore and remove them.

    Examples: rune workflows; rune workflows show orders@stable; rune workflows diff orders 2 3
    """
    if context.invoked_subcommand is None:
        list_workflows(everything, as_json)
    elif everything or as_json:
        raise typer.BadParameter(f"options go behind `{context.invoked_subcommand}`")


@workflows.command("list")
def list_workflows(everything: All = False, as_json: Json = False) -> None:
    """List the stored workflows by name. `rune workflows` alone does the same."""
    from rune.cli.backend import read

    async def work(reader: ExecutionReader, settings: Settings) -> int:
        _print_list(await reader.library.list(hidden=everything), as_json=as_json)
        return 0

    def empty() -> int:
        _print_list([], as_json=as_json)
        return 0

    raise typer.Exit(read(work, as_json=as_json, without_file=empty))


@workflows.command()
def show(
    given: Annotated[
        str, typer.Argument(metavar="NAME[@VERSION]", help="A workflow; a number or an alias, or the latest.")
    ],
    as_yaml: Annotated[
        bool, typer.Option("--yaml", help="Print the definition alone, as a YAML document to deploy again.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the versions and aliases of a workflow, and one version in full.

    Examples: rune workflows show orders; rune workflows show orders@2 --yaml > orders.yaml
    """
    from rune.cli.backend import reference, run_workflow_query

    workflow, which = reference(given)
    wanted = "yaml" if as_yaml else "json" if as_json else "text"
    raise typer.Exit(
        run_workflow_query(
            workflow, lambda reader: show_stored(reader, workflow, which, wanted), as_json=as_json
        )
    )


@workflows.command()
def diff(
    workflow: Name,
    before: Annotated[str, typer.Argument(metavar="A", help="A version: a number or an alias.")],
    after: Annotated[str, typer.Argument(metavar="B", help="Another.", show_default=True)] = "latest",
    unified: Annotated[
        bool, typer.Option("--unified", help="Compare the definitions line by line instead.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Tell what changed between two versions: nodes, edges and settings, parameter by parameter.

    Example: rune workflows diff orders stable latest
    """
    from rune.cli.backend import run_workflow_query

    wanted = "json" if as_json else "unified" if unified else "text"
    raise typer.Exit(
        run_workflow_query(
            workflow, lambda reader: show_difference(reader, workflow, before, after, wanted), as_json=as_json
        )
    )


@workflows.command()
def restore(
    given: Annotated[str, typer.Argument(metavar="NAME@VERSION", help="What shall be the latest again.")],
    as_json: Json = False,
) -> None:
    """Make an earlier version the latest again; this brings a removed workflow back too.

    Example: rune workflows restore orders@2
    """
    from rune.cli.backend import reference

    workflow, which = reference(given)
    if which is None:
        from rune.cli.output import refuse
        from rune.core.definition.problems import Problem

        said = f"which version of `{workflow}`?"
        missing = Problem("NAME@VERSION", "MISSING_VERSION", said, f"write for example {workflow}@1")
        raise typer.Exit(refuse((missing,), as_json=as_json))
    raise typer.Exit(_set_alias(workflow, "latest", which, as_json=as_json))


@workflows.command()
def alias(
    workflow: Name,
    name: Annotated[str, typer.Argument(metavar="ALIAS", help="`stable`, `canary` or any other name.")],
    version: Annotated[str, typer.Argument(metavar="VERSION", help="A number, or another alias.")],
    weights: Annotated[
        list[str] | None,
        typer.Argument(metavar="[OTHER=PERCENT]...", help="So many of the starts go to another version."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Let an alias point at a version, and send a part of the starts to others.

    Without shares every start by the alias gets the version, whatever there was before.

    Examples: rune workflows alias orders stable 3; rune workflows alias orders stable 3 4=10 latest=5
    """
    raise typer.Exit(_set_alias(workflow, name, version, tuple(weights or ()), as_json=as_json))


@workflows.command()
def limit(
    workflow: Name,
    rate: Rate = None,
    burst: Burst = None,
    running: Running = None,
    waiting: Annotated[
        int | None, typer.Option("--waiting", help="No start while more than this wait in the queue.")
    ] = None,
    none: Lifted = False,
    as_json: Json = False,
) -> None:
    """Limit the starts of a workflow over HTTP and by hooks; without options show its limits.

    Limits that are not given are lifted.

    Example: rune workflows limit orders --rate 10/s --running 20 --waiting 1000
    """
    from rune.cli.backend import exit_with
    from rune.cli.commands.access import limit_workflow, wanted
    from rune.ports.access import Limits

    limits = wanted(Limits(rate=rate, burst=burst, running=running, waiting=waiting), none=none)
    exit_with(lambda settings: limit_workflow(settings, workflow, limits, as_json=as_json), as_json=as_json)


@workflows.command()
def remove(workflow: Name, as_json: Json = False) -> None:
    """Take a workflow out of sight. Executions go on, versions stay, a new deploy brings it back."""
    from rune.cli.backend import ask, known, run_reporting_errors
    from rune.settings import load_settings

    def work() -> int:
        settings = load_settings()
        known(settings, workflow, None)
        hid = ask(settings, lambda services: services.workflows.archive(workflow))
        _say(
            {"status": "removed", "workflow_id": workflow, "changed": hid},
            f"{workflow} removed" if hid else f"{workflow} was removed before",
            as_json=as_json,
        )
        return 0

    raise typer.Exit(run_reporting_errors(work, as_json=as_json))


def _set_alias(workflow: str, name: str, which: str, others: tuple[str, ...] = (), *, as_json: bool) -> int:
    from rune.cli.backend import ask, known, label, run_reporting_errors, shares_of, version_document
    from rune.ports.workflows import check_alias
    from rune.settings import load_settings

    def work() -> int:
        check_alias(name)
        settings = load_settings()
        number = known(settings, workflow, which).number
        weights = shares_of(others, name, lambda other: known(settings, workflow, other).number)
        version: Version = ask(
            settings, lambda services: services.workflows.set_alias(workflow, name, number, weights=weights)
        )
        document = {"workflow_id": workflow, **version_document(version), "change": version.change}
        moved = "now" if version.change == "moved" else "already"
        shown = "".join(f", {share:g} % of its starts get {other}" for other, share in weights.items())
        _say({**document, "weights": weights}, f"{label(version)} is {moved} {name}{shown}", as_json=as_json)
        return 0

    return run_reporting_errors(work, as_json=as_json)


def _say(document: dict[str, Any], line: str, *, as_json: bool) -> None:
    from rune.cli.output import print_json

    if as_json:
        print_json(document)
    else:
        print(line)


def _print_list(found: list[WorkflowEntry], *, as_json: bool) -> None:
    if as_json:
        from rune.cli.output import print_json

        print_json({"workflows": [_entry_document(each) for each in found]})
    elif not found:
        print("no workflows")
    else:
        _print_entries(found)


def _entry_document(each: WorkflowEntry) -> dict[str, Any]:
    from rune.runtime.queries.history import iso

    return {
        "workflow_id": each.workflow,
        "name": each.name,
        "latest": each.latest,
        "versions": each.versions,
        "aliases": each.aliases,
        "deployed_at": iso(each.deployed_at),
        "hidden": each.hidden,
    }


def _print_entries(found: list[WorkflowEntry]) -> None:
    from rune.cli.output import moment, print_table

    rows: list[list[Cell]] = [
        [
            (each.workflow, "grey" if each.hidden else "bold"),
            f"{each.latest}",
            f"{each.versions}",
            moment(each.deployed_at),
            " ".join(f"{name}={number}" for name, number in each.aliases.items() if name != "latest"),
            f"{each.name} (removed)".lstrip() if each.hidden else each.name,
        ]
        for each in found
    ]
    print_table(("workflow", "latest", "versions", "deployed", "aliases", "name"), rows)


def deploy(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A workflow, JSON or YAML, or its folder; `-` reads stdin.")
    ],
    alias: Annotated[
        str | None,
        typer.Option("--alias", "-a", help="Let this alias point at the version too, beside `latest`."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Keep a workflow as its next version, to be started by its name.

    A document that says the same as an earlier version is that version again. Every deploy moves `latest`.

    Examples: rune deploy order.yaml; rune deploy order.yaml --alias stable
    """
    from rune.cli.backend import run_reporting_errors

    raise typer.Exit(run_reporting_errors(lambda: _deploy(file, alias, as_json=as_json), as_json=as_json))


def _deploy(file: str, alias: str | None, *, as_json: bool) -> int:
    from rune.cli.arguments import read_document
    from rune.cli.backend import ask
    from rune.cli.output import refuse
    from rune.core.definition.model import canonical
    from rune.documents.loader import check_document
    from rune.nodes.registry import full_registry
    from rune.ports.workflows import check_alias
    from rune.settings import load_settings

    settings = load_settings()
    if alias is not None:
        check_alias(alias)
    verdict = check_document(read_document(file), full_registry(settings.nodes).catalogue)
    if not verdict.valid or verdict.definition is None:
        return refuse(verdict.problems, as_json=as_json)
    definition = canonical(verdict.definition)
    version = ask(settings, lambda services: services.workflows.deploy(definition, alias=alias))
    if as_json:
        _print_document(version, verdict.problems)
    else:
        refuse(verdict.problems, as_json=False)  # warnings: said, but nothing hangs on them
        _print(version)
    return 0


def _print_document(version: Version, warnings: Sequence[Problem]) -> None:
    import msgspec

    from rune.cli.backend import version_document
    from rune.cli.output import print_json

    print_json(
        {
            "status": "deployed",
            "workflow_id": version.workflow,
            **version_document(version),
            "change": version.change,
            "problems": [msgspec.to_builtins(each) for each in warnings],
        }
    )


def _print(version: Version) -> None:
    from rune.cli.backend import label
    from rune.cli.output import paint

    said = {
        "created": f"deployed ({', '.join(version.aliases)})",
        "moved": f"was deployed before; it is now {', '.join(version.aliases)}",
        "none": f"is what is deployed already ({', '.join(version.aliases)}): nothing changed",
    }
    print(f"{paint(label(version), 'bold')} {said[version.change]}")


MAX_VERSIONS = 20


async def show_stored(reader: ExecutionReader, workflow: str, which: str | None, wanted: str) -> int:
    """A workflow and one of its versions, as `text`, `json` or `yaml`."""
    async with reader.still():
        versions = await reader.library.versions(workflow)
        version = choose(workflow, versions, which)
        definition = await definition_of(reader, version)
        aliases = await reader.library.aliases(workflow)
        hidden = any(
            each.hidden for each in await reader.library.list(hidden=True) if each.workflow == workflow
        )
    if wanted == "yaml":
        from rune.cli.arguments import print_yaml

        print_yaml(definition)
    elif wanted == "json":
        print_json(
            {
                "workflow_id": workflow,
                "name": definition.get("name", ""),
                "hidden": hidden,
                **version_document(version),
                "aliases": {each.name: each.number for each in aliases},
                "weights": {each.name: each.weights for each in aliases if each.weights},
                "versions": [version_document(each) for each in versions],
                "definition": definition,
            }
        )
    else:
        _print_stored(versions, version, definition, _shares(aliases), hidden=hidden)
    return 0


def _shares(aliases: list[Alias]) -> dict[int, str]:
    """The aliases that lead to each version, with the part of their starts where it is not all."""
    found: dict[int, list[str]] = {}
    for each in aliases:
        elsewhere = {number: share for number, share in each.weights.items() if number != each.number}
        for number, share in {each.number: 100 - sum(elsewhere.values()), **elsewhere}.items():
            found.setdefault(number, []).append(f"{each.name} {share:g} %" if elsewhere else each.name)
    return {number: ", ".join(names) for number, names in found.items()}


def _print_stored(
    versions: list[Version],
    version: Version,
    definition: dict[str, Any],
    shares: dict[int, str],
    *,
    hidden: bool,
) -> None:
    name = clean(definition.get("name", ""))
    print(f"{paint(version.workflow, 'bold')}{f': {name}' if name else ''}{' (removed)' if hidden else ''}\n")
    newest = versions[: -MAX_VERSIONS - 1 : -1]
    rows: list[list[Cell]] = [
        [
            (f"{each.number}", "bold" if each == version else ""),
            moment(each.at),
            each.hash[:12],
            shares.get(each.number, ""),
        ]
        for each in newest
    ]
    print_table(("version", "deployed", "hash", "aliases"), rows)
    if len(versions) > len(newest):
        print(f"… and {count(len(versions) - len(newest), 'earlier version')}; --json lists all")
    nodes, edges = definition["nodes"], definition.get("edges", [])
    print(
        f"\n{paint(label(version), 'bold')}: {count(len(nodes), 'node')}, {count(len(edges), 'edge')}, {version.hash}"
    )
    print_table(
        ("node", "type", "name"),
        [[(each["id"], "bold"), each["type"], each.get("name", "")] for each in nodes],
    )


async def show_difference(
    reader: ExecutionReader, workflow: str, before: str, after: str, wanted: str
) -> int:
    """What changed between two versions, as `text`, `json` or `unified` lines."""
    async with reader.still():
        versions = await reader.library.versions(workflow)
        pair = [choose(workflow, versions, which) for which in (before, after)]
        old, new = [await definition_of(reader, each) for each in pair]
    if wanted == "unified":
        _print_unified(pair, old, new)
        return 0
    from rune.core.definition.diff import difference

    changes = difference(old, new)
    if wanted == "json":
        import msgspec

        print_json(
            {
                "workflow_id": workflow,
                "from": {"version": pair[0].number, "hash": pair[0].hash},
                "to": {"version": pair[1].number, "hash": pair[1].hash},
                "changes": [msgspec.to_builtins(each) for each in changes],
            }
        )
        return 0

    if not changes:
        print(f"{label(pair[0])} and {label(pair[1])} are the same")
    else:
        print(paint(f"{workflow} {pair[0].number} → {pair[1].number}", "bold"))
        print_changes(changes)
    return 0


def _print_unified(pair: list[Version], old: dict[str, Any], new: dict[str, Any]) -> None:
    import difflib

    def lines(definition: dict[str, Any]) -> list[str]:
        return json.dumps(definition, indent=2, sort_keys=True, ensure_ascii=False).splitlines()

    for line in difflib.unified_diff(
        lines(old), lines(new), label(pair[0]), label(pair[1]), lineterm="", n=3
    ):
        print(paint(clean(line), {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")))


MARKS = {"added": "+", "removed": "-", "changed": "~", "reordered": "~"}
COLOURS = {"added": "green", "removed": "red", "changed": "yellow", "reordered": "yellow"}
LONG = 100

_SECTIONS = {"document": "workflow", "settings": "settings", "node": "nodes", "edge": "edges"}
_HEADED = frozenset({"id", "type", "src", "dst", "label", "is_error"})


def print_changes(changes: Sequence[Change]) -> None:
    """One section each for the workflow itself, settings, nodes and edges."""
    for what, found in groupby(changes, lambda each: each.what):
        print(paint(_SECTIONS[what], "bold"))
        for change in found:
            for line, kind in _lines(change):
                print(paint(clean(line) if line.strip() else "", COLOURS.get(kind, "")))


def _lines(change: Change) -> Iterator[tuple[str, str]]:
    """Lines without colours, and of which kind each is."""
    if change.what in {"document", "settings"}:
        for field in change.fields:
            yield from _field(field, "  ")
        return
    yield f"  {MARKS[change.kind]} {_heading(change)}", change.kind
    fields = change.fields or tuple(_whole(change))
    for field in fields:
        yield from _field(field, "      ")


def _heading(change: Change) -> str:
    thing = change.after or change.before or {}
    if change.what == "node":
        return f"{change.id} ({thing['type']})"
    named = "" if change.id == f"{thing['src']}-{thing['dst']}" else f"{change.id}: "
    traits = [f"`{thing['label']}`"] if "label" in thing else []
    traits += ["on error"] if thing.get("is_error") else []
    behind = f" ({', '.join(traits)})" if traits else ""
    return f"{named}{thing['src']} → {thing['dst']}{behind}"


def _whole(change: Change) -> Iterator[Field]:
    """What was added or removed with a node, parameter by parameter."""
    for key, value in (change.after or change.before or {}).items():
        if key in _HEADED:
            continue
        inner = value.items() if key == "parameters" else [("", value)]
        for name, each in inner:
            path = f"{key}.{name}" if name else key
            if change.kind == "added":
                yield Field(path, "added", None, each)
            else:
                yield Field(path, "removed", each)


def _field(field: Field, indent: str) -> Iterator[tuple[str, str]]:
    head = f"{indent}{MARKS[field.kind]} {field.path}"
    if field.kind == "reordered":
        yield f"{head}: in another order: {', '.join(field.after)}", field.kind
    elif field.kind == "added":
        yield f"{head}: {_shown(field.after)}", field.kind
    elif field.kind == "removed":
        yield f"{head}: {_shown(field.before)}", field.kind
    elif _is_text(field.before) and _is_text(field.after):
        yield f"{head}:", field.kind
        yield from _text(field.before, field.after, f"{indent}    ")
    else:
        yield f"{head}: {_shown(field.before)} → {_shown(field.after)}", field.kind


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and "\n" in value.rstrip("\n")


def _text(before: str, after: str, indent: str) -> Iterator[tuple[str, str]]:
    """Longer texts are compared line by line."""
    kinds = {"+": "added", "-": "removed"}
    lines = difflib.unified_diff(before.split("\n"), after.split("\n"), lineterm="", n=1)
    for number, line in enumerate(lines):
        if number >= 2:
            yield f"{indent}{line}", kinds.get(line[:1], "")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONG else f"{text[:LONG]}… ({len(text):,} characters)"
