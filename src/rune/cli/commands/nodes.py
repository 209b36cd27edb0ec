"""`rune nodes`: the catalogue of node types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rune.settings import Settings


def nodes(
    name: Annotated[str | None, typer.Argument(metavar="[TYPE]", help="Show one node type in full.")] = None,
    modules: Annotated[
        list[str] | None,
        typer.Option("--nodes", help="A Python module with custom nodes; may be given again."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the node types, or show the parameters, outlets and error codes of one; a server's, where RUNE_URL is set.

    Examples: rune nodes; rune nodes merge; rune nodes http --json
    """
    from rune.cli.output import print_json, refuse, refuse_error
    from rune.core.definition.problems import Problem, did_you_mean
    from rune.errors import RuneError
    from rune.settings import load_settings

    try:
        found = _known(load_settings(), tuple(modules or ()))
    except RuneError as error:
        raise typer.Exit(refuse_error(error, as_json=as_json)) from None
    by_name = {every: each for each in found for every in (each["type"], *each["aliases"])}
    if name is not None and name not in by_name:
        hint = did_you_mean(name, by_name)
        problem = Problem("type", "UNKNOWN_TYPE", f"no node type is called `{name}`", hint)
        raise typer.Exit(refuse((problem,), as_json=as_json))
    if as_json:
        print_json({"nodes": found} if name is None else by_name[name])
    elif name is None:
        _print_all(found)
    else:
        _print_one(by_name[name])


def _known(settings: Settings, modules: tuple[str, ...]) -> list[dict[str, Any]]:
    if settings.url and not modules:
        from rune.cli.backend import with_client

        return with_client(settings, lambda asked: asked.node_types())
    from rune.cli.backend import require_local
    from rune.nodes.registry import (
        described,
        full_registry,
    )

    require_local(settings, "nodes --nodes")
    return described(full_registry((*settings.nodes, *modules)))


def _traits(each: dict[str, Any]) -> str:
    said = [
        ("trigger", each["trigger"]),
        ("effectful", each["effectful"]),
        ("fans out", each["fans_out"]),
        ("gathers items", each["gathers_items"]),
        ("waits", each["waits"]),
        ("cannot run yet", not each["runnable"]),
    ]
    return ", ".join(word for word, true in said if true)


def _print_all(found: list[dict[str, Any]]) -> None:
    from rune.cli.output import Cell, print_table

    rows: list[list[Cell]] = [
        [(each["type"], "bold"), ", ".join(each["aliases"]), _traits(each), each["summary"]] for each in found
    ]
    print_table(("type", "also", "traits", "what it does"), rows)


def _print_one(each: dict[str, Any]) -> None:
    from rune.cli.output import Cell, paint, print_table

    also = f" (also {', '.join(each['aliases'])})" if each["aliases"] else ""
    traits = _traits(each)
    print(f"{paint(each['type'], 'bold')}{also}{f': {traits}' if traits else ''}")
    print(f"{each['doc'] or each['summary']}\n")
    schema = each["parameters"]
    required = schema.get("required", ())
    rows: list[list[Cell]] = []
    for name, given in schema.get("properties", {}).items():
        default = "required" if name in required else _shown(given.get("default"))
        rows.append([(name, "bold"), _kind(given), default, given.get("description", "")])
    if rows:
        print_table(("parameter", "type", "default", "meaning"), rows)
    else:
        print("no parameters")
    if each["outlets"]:
        print(f"\noutlets: {', '.join(each['outlets'])}")
    if each["output"]:
        print(f"\noutput: {each['output']}")
    if each["errors"]:
        print()
        print_table(("error code", "when"), [[code, when] for code, when in each["errors"].items()])


def _shown(value: Any) -> str:
    import json

    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _kind(schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "anyOf" in schema:
        kinds = [_kind(each) for each in schema["anyOf"]]
        return " or ".join(dict.fromkeys(each for each in kinds if each != "null"))
    if "enum" in schema:
        return " | ".join(str(each) for each in schema["enum"] if each is not None)
    kind = schema.get("type", "any")
    if kind == "array":
        inner = _kind(schema.get("items", {}))
        return "array" if inner == "any" else f"array of {inner}"
    return ", ".join(kind) if isinstance(kind, list) else str(kind)
