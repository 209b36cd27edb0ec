"""`rune workflows`: stored definitions, their versions and aliases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rune.cli.limitoptions import Burst, Lifted, Rate, Running

if TYPE_CHECKING:
    from rune.ports.library import Entry, Version
    from rune.runtime.reader import Reader
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
    from rune.cli.reading import read  # noqa: PLC0415 - help must be quick

    async def work(reader: Reader, settings: Settings) -> int:
        _print_list(await reader.library.entries(hidden=everything), as_json=as_json)
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
    from rune.cli.library import look, reference  # noqa: PLC0415 - help must be quick
    from rune.cli.stored import show_stored  # noqa: PLC0415

    workflow, which = reference(given)
    wanted = "yaml" if as_yaml else "json" if as_json else "text"
    raise typer.Exit(
        look(workflow, lambda reader: show_stored(reader, workflow, which, wanted), as_json=as_json)
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
    from rune.cli.library import look  # noqa: PLC0415 - help must be quick
    from rune.cli.stored import show_difference  # noqa: PLC0415

    wanted = "json" if as_json else "unified" if unified else "text"
    raise typer.Exit(
        look(
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
    from rune.cli.library import reference  # noqa: PLC0415 - help must be quick

    workflow, which = reference(given)
    if which is None:
        from rune.cli.problems import refuse  # noqa: PLC0415
        from rune.core.problem import Problem  # noqa: PLC0415

        said = f"which version of `{workflow}`?"
        missing = Problem("NAME@VERSION", "MISSING_VERSION", said, f"write for example {workflow}@1")
        raise typer.Exit(refuse((missing,), as_json=as_json))
    raise typer.Exit(_point(workflow, "latest", which, as_json=as_json))


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
    raise typer.Exit(_point(workflow, name, version, tuple(weights or ()), as_json=as_json))


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
    from rune.cli.access import leave  # noqa: PLC0415 - help must be quick
    from rune.cli.limiting import limit_workflow, wanted  # noqa: PLC0415
    from rune.ports.limits import Limits  # noqa: PLC0415

    limits = wanted(Limits(rate=rate, burst=burst, running=running, waiting=waiting), none=none)
    leave(lambda settings: limit_workflow(settings, workflow, limits, as_json=as_json), as_json=as_json)


@workflows.command()
def remove(workflow: Name, as_json: Json = False) -> None:
    """Take a workflow out of sight. Executions go on, versions stay, a new deploy brings it back."""
    from rune.cli.library import ask, known, refusing  # noqa: PLC0415 - help must be quick
    from rune.settings import load_settings  # noqa: PLC0415

    def work() -> int:
        settings = load_settings()
        known(settings, workflow, None)
        hid = ask(settings, lambda desk: desk.hide(workflow))
        _say(
            {"status": "removed", "workflow_id": workflow, "changed": hid},
            f"{workflow} removed" if hid else f"{workflow} was removed before",
            as_json=as_json,
        )
        return 0

    raise typer.Exit(refusing(work, as_json=as_json))


def _point(workflow: str, name: str, which: str, others: tuple[str, ...] = (), *, as_json: bool) -> int:
    from rune.cli.library import ask, known, label, refusing, shares_of, version_document  # noqa: PLC0415
    from rune.ports.library import check_alias  # noqa: PLC0415
    from rune.settings import load_settings  # noqa: PLC0415

    def work() -> int:
        check_alias(name)
        settings = load_settings()
        number = known(settings, workflow, which).number
        weights = shares_of(others, name, lambda other: known(settings, workflow, other).number)
        version: Version = ask(settings, lambda desk: desk.point(workflow, name, number, weights=weights))
        document = {"workflow_id": workflow, **version_document(version), "change": version.change}
        moved = "now" if version.change == "moved" else "already"
        shown = "".join(f", {share:g} % of its starts get {other}" for other, share in weights.items())
        _say({**document, "weights": weights}, f"{label(version)} is {moved} {name}{shown}", as_json=as_json)
        return 0

    return refusing(work, as_json=as_json)


def _say(document: dict[str, Any], line: str, *, as_json: bool) -> None:
    from rune.cli.problems import print_json  # noqa: PLC0415

    if as_json:
        print_json(document)
    else:
        print(line)


def _print_list(found: list[Entry], *, as_json: bool) -> None:
    if as_json:
        from rune.cli.problems import print_json  # noqa: PLC0415

        print_json({"workflows": [_entry_document(each) for each in found]})
    elif not found:
        print("no workflows")
    else:
        _print_entries(found)


def _entry_document(each: Entry) -> dict[str, Any]:
    from rune.runtime.history import iso  # noqa: PLC0415

    return {
        "workflow_id": each.workflow,
        "name": each.name,
        "latest": each.latest,
        "versions": each.versions,
        "aliases": each.aliases,
        "deployed_at": iso(each.deployed_at),
        "hidden": each.hidden,
    }


def _print_entries(found: list[Entry]) -> None:
    from rune.cli.text import Cell, moment, print_table  # noqa: PLC0415

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
