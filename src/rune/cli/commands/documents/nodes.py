"""`rune nodes` and `rune schema`: the catalogue of node types, and the JSON Schema of documents made of it."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from rune.cli.arguments import Nodes, with_modules, without_file_modules
from rune.cli.output import Cell, paint, print_error, print_json, print_problems, print_table
from rune.core.definition.model import Retry
from rune.core.definition.problems import Problem, did_you_mean
from rune.documents.json_schema import workflow_schema
from rune.errors import RuneError
from rune.nodes.registry import described, full_registry
from rune.settings import Settings, load_settings

_RETRY = Retry()
RETRY_DEFAULTS = (
    f"retry: max_attempts {_RETRY.max_attempts}, initial_delay {_RETRY.initial_delay:g} s, backoff {_RETRY.backoff:g}, "
    f"max_delay {_RETRY.max_delay:g} s, jitter {str(_RETRY.jitter).lower()}, on: every transient error"
)


def nodes(
    name: Annotated[str | None, typer.Argument(metavar="[TYPE]", help="Node type to show in full.")] = None,
    modules: Nodes = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the node types, or show one of them in full.

    With a type: its parameters, outlets, output and error codes. A node with
    `retry` is retried after transient errors; if `retry.on` lists error codes, it
    is retried after those only. If RUNE_URL is set, the types are those of that
    server. The modules that rune.toml names are not imported: use --nodes or
    RUNE_NODES.

    Examples:
      rune nodes
      rune nodes merge
      rune nodes http --json
    """
    try:
        found = _find_types(load_settings(), tuple(modules or ()))
    except RuneError as error:
        raise typer.Exit(print_error(error, as_json=as_json)) from None
    by_name = {every: each for each in found for every in (each["type"], *each["aliases"])}
    if name is not None and name not in by_name:
        hint = did_you_mean(name, by_name)
        problem = Problem("type", "UNKNOWN_TYPE", f"there is no node type `{name}`", hint)
        raise typer.Exit(print_problems((problem,), as_json=as_json))
    if as_json:
        print_json({"nodes": found} if name is None else by_name[name])
    elif name is None:
        _print_all(found)
    else:
        _print_one(by_name[name])


def _find_types(settings: Settings, modules: tuple[str, ...]) -> list[dict[str, Any]]:
    # `rune nodes` without a server needs no backend, whose import takes longer than the rest.
    if settings.url:
        from rune.cli.backend import require_local, with_client  # noqa: PLC0415 - see above

        if modules:
            require_local(settings, "nodes --nodes")
        return with_client(settings, lambda api: api.node_types())
    return described(full_registry(with_modules(without_file_modules(settings), modules).nodes))


def schema(modules: Nodes = None) -> None:
    """Print the JSON Schema of workflow documents, for editors.

    It contains the parameters of every node type, including the custom nodes of
    --nodes and RUNE_NODES; the modules that rune.toml names are not imported.
    If RUNE_URL is set, it contains the node types of that server instead.

    Examples:
      rune schema > workflow.schema.json
      rune schema --nodes acme_nodes > workflow.schema.json
    """
    try:
        made = _make_schema(load_settings(), tuple(modules or ()))
    except RuneError as error:
        raise typer.Exit(print_error(error, as_json=False)) from None
    typer.echo(json.dumps(made, ensure_ascii=False, indent=2))


def _make_schema(settings: Settings, modules: tuple[str, ...]) -> dict[str, Any]:
    if settings.url:
        from rune.cli.backend import require_local, with_client  # noqa: PLC0415 - see above

        if modules:
            require_local(settings, "schema --nodes")
        return with_client(settings, lambda api: api.workflow_schema())
    known = full_registry(with_modules(without_file_modules(settings), modules).nodes)
    return workflow_schema(known.catalogue)


def _traits(each: dict[str, Any]) -> str:
    traits = [
        ("trigger", each["trigger"]),
        ("effectful", each["effectful"]),
        ("fans out", each["fans_out"]),
        ("gathers items", each["gathers_items"]),
        ("waits", each["waits"]),
        ("not runnable", not each["runnable"]),
    ]
    return ", ".join(word for word, applies in traits if applies)


def _print_all(found: list[dict[str, Any]]) -> None:
    rows: list[list[Cell]] = [
        [(each["type"], "bold"), ", ".join(each["aliases"]), _traits(each), each["summary"]] for each in found
    ]
    print_table(("type", "also", "traits", "summary"), rows)


def _print_one(each: dict[str, Any]) -> None:
    also = f" (also {', '.join(each['aliases'])})" if each["aliases"] else ""
    traits = _traits(each)
    print(f"{paint(each['type'], 'bold')}{also}{f': {traits}' if traits else ''}")
    print(f"{each['doc'] or each['summary']}\n")
    schema = each["parameters"]
    required = schema.get("required", ())
    rows: list[list[Cell]] = []
    for name, given in schema.get("properties", {}).items():
        default = "required" if name in required else _encode(given.get("default"))
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
        classes = each.get("error_classes", {})  # a server of an earlier version does not send them
        rows = [[code, classes.get(code, ""), when] for code, when in each["errors"].items()]
        print_table(("error code", "class", "when"), rows)
        print(f"\n{RETRY_DEFAULTS}")


def _encode(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _kind(schema: dict[str, Any]) -> str:
    """Format the type of a JSON schema."""
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
