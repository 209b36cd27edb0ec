"""`rune nodes`: the catalogue of node types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rune.core.nodetype import NodeType
    from rune.nodes.registry import Registry


def nodes(
    name: Annotated[str | None, typer.Argument(metavar="[TYPE]", help="Show one node type in full.")] = None,
    modules: Annotated[
        list[str] | None,
        typer.Option("--nodes", help="A Python module with custom nodes; may be given again."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the node types, or show the parameters, outlets and error codes of one.

    Examples: rune nodes; rune nodes merge; rune nodes http --json
    """
    from rune.cli.problems import refuse, refuse_error  # noqa: PLC0415 - help must be quick
    from rune.core.problem import Problem, did_you_mean  # noqa: PLC0415
    from rune.errors import RuneError  # noqa: PLC0415
    from rune.nodes.discovery import full_registry  # noqa: PLC0415
    from rune.settings import load_settings  # noqa: PLC0415

    try:
        registry = full_registry((*load_settings().nodes, *(modules or ())))
    except RuneError as error:
        raise typer.Exit(refuse_error(error, as_json=as_json)) from None
    if name is not None and name not in registry.catalogue:
        hint = did_you_mean(name, registry.catalogue)
        problem = Problem("type", "UNKNOWN_TYPE", f"no node type is called `{name}`", hint)
        raise typer.Exit(refuse((problem,), as_json=as_json))
    _print(registry, name, as_json=as_json)


def _print(registry: Registry, name: str | None, *, as_json: bool) -> None:
    if as_json:
        from rune.cli.problems import print_json  # noqa: PLC0415

        if name is not None:
            print_json(_document(registry, registry.catalogue[name]))
        else:
            print_json({"nodes": [_document(registry, each) for each in _types(registry)]})
    elif name is None:
        _print_all(registry)
    else:
        _print_one(registry, registry.catalogue[name])


def _types(registry: Registry) -> list[NodeType]:
    """Each type once, however many names it has."""
    return list({each.name: each for each in registry.catalogue.values()}.values())


def _document(registry: Registry, each: NodeType) -> dict[str, Any]:
    return {
        "type": each.name,
        "aliases": list(each.aliases),
        "summary": each.summary,
        "doc": each.doc,
        "output": each.output,
        "errors": dict(each.errors),
        "outlets": list(_outlets(each)),
        "trigger": each.trigger,
        "effectful": _effectful(each),
        "runnable": each.name in registry,
        "parameters": dict(each.schema),
    }


def _outlets(each: NodeType) -> tuple[str, ...]:
    """The outlets of a node that says nothing about them."""
    try:
        return tuple(each.outlets({}))
    except (KeyError, TypeError, ValueError):
        return ()


def _effectful(each: NodeType) -> bool:
    try:
        return bool(each.effectful({}))
    except (KeyError, TypeError, ValueError):
        return False


def _traits(registry: Registry, each: NodeType) -> str:
    said = [
        ("trigger", each.trigger),
        ("effectful", _effectful(each)),
        ("fans out", each.fans_out),
        ("gathers items", each.joins_items),
        ("waits", each.suspends),
        ("cannot run yet", each.name not in registry),
    ]
    return ", ".join(word for word, true in said if true)


def _print_all(registry: Registry) -> None:
    from rune.cli.text import Cell, print_table  # noqa: PLC0415

    rows: list[list[Cell]] = [
        [(each.name, "bold"), ", ".join(each.aliases), _traits(registry, each), each.summary]
        for each in _types(registry)
    ]
    print_table(("type", "also", "traits", "what it does"), rows)


def _print_one(registry: Registry, each: NodeType) -> None:
    from rune.cli.text import Cell, paint, print_table  # noqa: PLC0415

    also = f" (also {', '.join(each.aliases)})" if each.aliases else ""
    traits = _traits(registry, each)
    print(f"{paint(each.name, 'bold')}{also}{f': {traits}' if traits else ''}")
    print(f"{each.doc or each.summary}\n")
    required = each.schema.get("required", ())
    rows: list[list[Cell]] = []
    for name, schema in each.schema.get("properties", {}).items():
        default = "required" if name in required else _shown(schema.get("default"))
        rows.append([(name, "bold"), _kind(schema), default, schema.get("description", "")])
    if rows:
        print_table(("parameter", "type", "default", "meaning"), rows)
    else:
        print("no parameters")
    outlets = _outlets(each)
    if outlets:
        print(f"\noutlets: {', '.join(outlets)}")
    if each.output:
        print(f"\noutput: {each.output}")
    if each.errors:
        print()
        print_table(("error code", "when"), [[code, when] for code, when in each.errors.items()])


def _shown(value: Any) -> str:
    import json  # noqa: PLC0415

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
