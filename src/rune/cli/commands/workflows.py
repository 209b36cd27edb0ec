"""`rune deploy` and `rune workflows`: store, show and compare workflow definitions, their versions and aliases."""

from __future__ import annotations

import asyncio
import difflib
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Annotated, Any

import msgspec
import typer

from rune.cli.arguments import Burst, Rate, RemoveLimits, Running, read_document
from rune.cli.backend import (
    CommandReader,
    call_service,
    children_to_deploy,
    definition_of,
    exit_with,
    find_version,
    label,
    owner_pid,
    parse_weights,
    read,
    run_reporting_errors,
    run_workflow_query,
    split_reference,
    version_document,
)
from rune.cli.commands.access import limit_workflow, limits_to_set
from rune.cli.output import (
    Cell,
    clean,
    count,
    file_of,
    moment,
    paint,
    print_json,
    print_problems,
    print_table,
)
from rune.core.definition.diff import Change, Field, difference
from rune.core.definition.model import canonical
from rune.core.definition.problems import UNKNOWN_TYPE, Problem
from rune.documents.loader import check_document
from rune.errors import InvalidDocumentError
from rune.nodes.registry import full_registry
from rune.ports.access import Limits
from rune.ports.clock import iso
from rune.ports.workflows import (
    Alias,
    DeployedVersion,
    Version,
    WorkflowEntry,
    check_alias,
    choose,
    version_source,
)
from rune.settings import Settings, load_settings

workflows = typer.Typer(name="workflows")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
All = Annotated[bool, typer.Option("--all", help="Include removed workflows.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the workflow.")]


@workflows.callback(invoke_without_command=True)
def _workflows(context: typer.Context, everything: All = False, as_json: Json = False) -> None:
    """List, show, compare, limit or remove deployed workflows.

    Without a command: list them.

    Examples:
      rune workflows
      rune workflows show orders@stable
      rune workflows diff orders 2 3
    """
    if context.invoked_subcommand is None:
        list_workflows(everything, as_json)
    elif everything or as_json:
        raise typer.BadParameter(f"write options after `{context.invoked_subcommand}`")


@workflows.command("list")
def list_workflows(everything: All = False, as_json: Json = False) -> None:
    """List the deployed workflows by name, the same as `rune workflows`."""

    async def work(reader: CommandReader, settings: Settings) -> int:
        _print_list(await reader.workflows.list(hidden=everything), as_json=as_json)
        return 0

    def empty() -> int:
        _print_list([], as_json=as_json)
        return 0

    raise typer.Exit(read(work, as_json=as_json, without_file=empty))


@workflows.command()
def show(
    given: Annotated[
        str,
        typer.Argument(
            metavar="NAME[@VERSION]",
            help="Workflow, with a version number or an alias. Default: the latest version.",
        ),
    ],
    as_yaml: Annotated[
        bool,
        typer.Option("--yaml", help="Print only the definition, as a YAML document that can be deployed."),
    ] = False,
    as_source: Annotated[
        bool,
        typer.Option(
            "--source", help="Print only the text that the version was deployed with, JSON or YAML."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the versions and aliases of a workflow, and one version in full.

    Examples:
      rune workflows show orders
      rune workflows show orders@2 --yaml > orders.yaml
    """
    workflow, which = split_reference(given)
    wanted = "source" if as_source else "yaml" if as_yaml else "json" if as_json else "text"
    raise typer.Exit(
        run_workflow_query(
            workflow, lambda reader: show_stored(reader, workflow, which, wanted), as_json=as_json
        )
    )


@workflows.command()
def diff(
    workflow: Name,
    before: Annotated[str, typer.Argument(metavar="A", help="First version: a number or an alias.")],
    after: Annotated[
        str, typer.Argument(metavar="B", help="Second version: a number or an alias.", show_default=True)
    ] = "latest",
    unified: Annotated[bool, typer.Option("--unified", help="Compare the definitions line by line.")] = False,
    as_json: Json = False,
) -> None:
    """Show what changed between two versions: nodes, edges, settings and parameters.

    Example: rune workflows diff orders stable latest
    """
    wanted = "json" if as_json else "unified" if unified else "text"
    raise typer.Exit(
        run_workflow_query(
            workflow, lambda reader: show_difference(reader, workflow, before, after, wanted), as_json=as_json
        )
    )


@workflows.command()
def restore(
    given: Annotated[
        str, typer.Argument(metavar="NAME@VERSION", help="Workflow and the version to restore.")
    ],
    as_json: Json = False,
) -> None:
    """Make an earlier version the latest again. This also restores a removed workflow.

    Example: rune workflows restore orders@2
    """
    workflow, which = split_reference(given)
    if which is None:
        message = f"the version of `{workflow}` is missing"
        missing = Problem("NAME@VERSION", "MISSING_VERSION", message, f"for example {workflow}@1")
        raise typer.Exit(print_problems((missing,), as_json=as_json))
    raise typer.Exit(_set_alias(workflow, "latest", which, as_json=as_json))


@workflows.command()
def alias(
    workflow: Name,
    name: Annotated[
        str, typer.Argument(metavar="ALIAS", help="Name of the alias, for example `stable` or `canary`.")
    ],
    version: Annotated[str, typer.Argument(metavar="VERSION", help="Version number, or another alias.")],
    weights: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[OTHER=PERCENT]...", help="Percentage of the starts that go to another version."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Point an alias at a version, and optionally send a percentage of its starts to other versions.

    Without percentages, every start by the alias uses VERSION, and percentages
    that were set before are removed.

    Examples:
      rune workflows alias orders stable 3
      rune workflows alias orders stable 3 4=10 latest=5
    """
    raise typer.Exit(_set_alias(workflow, name, version, tuple(weights or ()), as_json=as_json))


@workflows.command()
def limit(
    workflow: Name,
    rate: Rate = None,
    burst: Burst = None,
    running: Running = None,
    waiting: Annotated[
        int | None,
        typer.Option("--waiting", help="Reject starts while more than this many nodes wait in the queue."),
    ] = None,
    none: RemoveLimits = False,
    as_json: Json = False,
) -> None:
    """Limit the starts of a workflow over the API and by webhooks. Without options, show its limits.

    The given limits replace all previous ones.

    Example: rune workflows limit orders --rate 10/s --running 20 --waiting 1000
    """
    limits = limits_to_set(Limits(rate=rate, burst=burst, running=running, waiting=waiting), none=none)
    exit_with(lambda settings: limit_workflow(settings, workflow, limits, as_json=as_json), as_json=as_json)


@workflows.command()
def remove(workflow: Name, as_json: Json = False) -> None:
    """Archive a workflow. Its executions and versions are kept; a new deploy restores it."""

    def work() -> int:
        settings = load_settings()
        find_version(settings, workflow, None)
        archived = call_service(settings, lambda service: service.workflows.archive(workflow))
        _print_result(
            {"status": "removed", "workflow_id": workflow, "changed": archived},
            f"{workflow} removed" if archived else f"{workflow} was already removed",
            as_json=as_json,
        )
        return 0

    raise typer.Exit(run_reporting_errors(work, as_json=as_json))


def _set_alias(workflow: str, name: str, which: str, others: tuple[str, ...] = (), *, as_json: bool) -> int:
    def work() -> int:
        check_alias(name)
        settings = load_settings()
        number = find_version(settings, workflow, which).number
        weights = parse_weights(
            others, name, number, lambda other: find_version(settings, workflow, other).number
        )
        version: Version = call_service(
            settings, lambda service: service.workflows.set_alias(workflow, name, number, weights=weights)
        )
        document = {"workflow_id": workflow, **version_document(version), "change": version.change}
        moved = "now" if version.change == "moved" else "already"
        shown = "".join(
            f", {share:g} % of its starts use version {other}" for other, share in weights.items()
        )
        _print_result(
            {**document, "weights": weights}, f"{label(version)} is {moved} {name}{shown}", as_json=as_json
        )
        return 0

    return run_reporting_errors(work, as_json=as_json)


def _print_result(document: dict[str, Any], line: str, *, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        print(line)


def _print_list(found: list[WorkflowEntry], *, as_json: bool) -> None:
    if as_json:
        print_json({"workflows": [_entry_document(each) for each in found]})
    elif not found:
        print("no workflows")
    else:
        _print_entries(found)


def _entry_document(each: WorkflowEntry) -> dict[str, Any]:
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
        str,
        typer.Argument(
            metavar="FILE", help="Workflow: a JSON or YAML file, or its folder; `-` reads standard input."
        ),
    ],
    alias: Annotated[
        str | None,
        typer.Option("--alias", "-a", help="Also point this alias at the version."),
    ] = None,
    note: Annotated[str, typer.Option("--note", help="A note about the change, kept with the version.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Store a workflow as its next version.

    It can then be started by name. If an earlier version has the same content,
    no new version is stored and that one becomes the latest again. The text of
    the document is kept with the version.

    Examples:
      rune deploy order.yaml
      rune deploy order.yaml --alias stable --note "longer timeout"
    """
    raise typer.Exit(
        run_reporting_errors(lambda: _deploy(file, alias, note, as_json=as_json), as_json=as_json)
    )


def _deploy(file: str, alias: str | None, note: str, *, as_json: bool) -> int:
    settings = load_settings()
    if alias is not None:
        check_alias(alias)
    parsed = read_document(file)
    shown = file_of(file, parsed.source)
    # A server, or the process that owns the file, checks the document against its own node types, which this process
    # may not have.
    refused, warnings = parsed.refused, parsed.problems
    verdict = None
    if not settings.url:
        verdict = check_document(parsed, full_registry(settings.nodes).catalogue)
        errors = {each.code for each in verdict.problems if each.severity == "error"}
        if errors != {UNKNOWN_TYPE} or owner_pid(settings) is None:
            refused, warnings = not verdict.valid, verdict.problems
    if refused or parsed.definition is None:
        return print_problems(warnings, as_json=as_json, file=shown)
    definition = canonical(parsed.definition)
    source = None if parsed.source is None else version_source(parsed.source)
    try:
        version = call_service(
            settings,
            lambda service: service.workflows.deploy(definition, alias=alias, source=source, note=note),
        )
    except InvalidDocumentError as error:
        return print_problems(error.problems, as_json=as_json, file=shown)
    if isinstance(version, DeployedVersion):
        warnings = version.problems
    elif verdict is not None:
        warnings = (*warnings, *asyncio.run(children_to_deploy(settings, verdict)))
    if as_json:
        _print_document(version, warnings)
    else:
        print_problems(
            warnings, as_json=False, file=shown
        )  # prints warnings, which do not prevent the deploy
        _print(version)
    return 0


def _print_document(version: Version, warnings: Sequence[Problem]) -> None:
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
    changes = {
        "created": f"deployed ({', '.join(version.aliases)})",
        "moved": f"was deployed before and is now {', '.join(version.aliases)}",
        "none": f"is already deployed ({', '.join(version.aliases)}): nothing changed",
    }
    print(f"{paint(label(version), 'bold')} {changes[version.change]}")


MAX_SHOWN_VERSIONS = 20


async def show_stored(reader: CommandReader, workflow: str, which: str | None, wanted: str) -> int:
    """Print a workflow and one of its versions, as `text`, `json` or `yaml`, or the `source` of the version."""
    if wanted == "source":
        return await _show_source(reader, workflow, which)
    async with reader.snapshot():
        versions = await reader.workflows.versions(workflow)
        version = choose(workflow, versions, which)
        definition = await definition_of(reader, version)
        aliases = await reader.workflows.aliases(workflow)
        hidden = any(
            each.hidden for each in await reader.workflows.list(hidden=True) if each.workflow == workflow
        )
    if wanted == "yaml":
        from rune.documents.yaml import to_yaml  # noqa: PLC0415 - slow to import

        sys.stdout.write(to_yaml(definition))
        sys.stdout.flush()
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
        _print_stored(versions, version, definition, _aliases_by_version(aliases), hidden=hidden)
    return 0


async def _show_source(reader: CommandReader, workflow: str, which: str | None) -> int:
    version = choose(workflow, await reader.workflows.versions(workflow), which)
    source = await reader.workflows.source(workflow, version.number)
    if source is None:
        message = f"{label(version)} was stored without its text"
        return print_problems(
            (Problem("", "NO_SOURCE", message, "--yaml prints its definition"),), as_json=False
        )
    sys.stdout.flush()
    sys.stdout.buffer.write(source.data)
    sys.stdout.buffer.flush()
    return 0


def _aliases_by_version(aliases: list[Alias]) -> dict[int, str]:
    """Return the aliases of each version, with percentages where an alias has several versions."""
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
    newest = versions[: -MAX_SHOWN_VERSIONS - 1 : -1]
    rows: list[list[Cell]] = [
        [
            (f"{each.number}", "bold" if each == version else ""),
            moment(each.at),
            each.hash[:12],
            shares.get(each.number, ""),
            each.principal or "",
            each.note,
        ]
        for each in newest
    ]
    print_table(("version", "deployed", "hash", "aliases", "by", "note"), rows)
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


async def show_difference(reader: CommandReader, workflow: str, before: str, after: str, wanted: str) -> int:
    """Print what changed between two versions, as `text`, `json` or `unified` lines."""
    async with reader.snapshot():
        versions = await reader.workflows.versions(workflow)
        pair = [choose(workflow, versions, which) for which in (before, after)]
        old, new = [await definition_of(reader, each) for each in pair]
    if wanted == "unified":
        _print_unified(pair, old, new)
        return 0

    changes = difference(old, new)
    if wanted == "json":
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
    def lines(definition: dict[str, Any]) -> list[str]:
        return json.dumps(definition, indent=2, sort_keys=True, ensure_ascii=False).splitlines()

    for line in difflib.unified_diff(
        lines(old), lines(new), label(pair[0]), label(pair[1]), lineterm="", n=3
    ):
        print(paint(clean(line), {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")))


MARKS = {"added": "+", "removed": "-", "changed": "~", "reordered": "~"}
COLOURS = {"added": "green", "removed": "red", "changed": "yellow", "reordered": "yellow"}
MAX_VALUE_LENGTH = 100

_SECTIONS = {"document": "workflow", "settings": "settings", "node": "nodes", "edge": "edges"}
_HEADING_FIELDS = frozenset({"id", "type", "src", "dst", "label", "is_error"})


def print_changes(changes: Sequence[Change]) -> None:
    """Print the changes in sections: workflow, settings, nodes and edges."""
    for what, found in groupby(changes, lambda each: each.what):
        print(paint(_SECTIONS[what], "bold"))
        for change in found:
            for line, kind in _lines(change):
                print(paint(clean(line) if line.strip() else "", COLOURS.get(kind, "")))


def _lines(change: Change) -> Iterator[tuple[str, str]]:
    """Yield the lines of a change, each with its kind."""
    if change.what in {"document", "settings"}:
        for field in change.fields:
            yield from _field(field, "  ")
        return
    yield f"  {MARKS[change.kind]} {_heading(change)}", change.kind
    fields = change.fields or tuple(_all_fields(change))
    for field in fields:
        yield from _field(field, "      ")


def _heading(change: Change) -> str:
    thing = change.after or change.before or {}
    if change.what == "node":
        return f"{change.id} ({thing['type']})"
    named = "" if change.id == f"{thing['src']}-{thing['dst']}" else f"{change.id}: "
    traits = [f"`{thing['label']}`"] if "label" in thing else []
    traits += ["on error"] if thing.get("is_error") else []
    suffix = f" ({', '.join(traits)})" if traits else ""
    return f"{named}{thing['src']} → {thing['dst']}{suffix}"


def _all_fields(change: Change) -> Iterator[Field]:
    """Yield the fields of an added or removed node or edge, each parameter separately."""
    for key, value in (change.after or change.before or {}).items():
        if key in _HEADING_FIELDS:
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
        yield f"{head}: reordered: {', '.join(field.after)}", field.kind
    elif field.kind == "added":
        yield f"{head}: {_encode(field.after)}", field.kind
    elif field.kind == "removed":
        yield f"{head}: {_encode(field.before)}", field.kind
    elif _is_text(field.before) and _is_text(field.after):
        yield f"{head}:", field.kind
        yield from _text_diff(field.before, field.after, f"{indent}    ")
    else:
        yield f"{head}: {_encode(field.before)} → {_encode(field.after)}", field.kind


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and "\n" in value.rstrip("\n")


def _text_diff(before: str, after: str, indent: str) -> Iterator[tuple[str, str]]:
    """Compare two multi-line texts line by line."""
    kinds = {"+": "added", "-": "removed"}
    lines = difflib.unified_diff(before.split("\n"), after.split("\n"), lineterm="", n=1)
    for number, line in enumerate(lines):
        if number >= 2:
            yield f"{indent}{line}", kinds.get(line[:1], "")


def _encode(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[:MAX_VALUE_LENGTH]}… ({len(text):,} characters)"
