"""Stored definitions on the screen: versions, one definition in full, two side by side."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rune.cli.library import definition_of, label, version_document
from rune.cli.problems import print_json
from rune.cli.text import Cell, clean, count, moment, paint, print_table
from rune.ports.library import Alias, Version, choose

if TYPE_CHECKING:
    from rune.runtime.reader import Reader

MOST_VERSIONS = 20


async def show_stored(reader: Reader, workflow: str, which: str | None, wanted: str) -> int:
    """A workflow and one of its versions, as `text`, `json` or `yaml`."""
    async with reader.still():
        versions = await reader.library.versions(workflow)
        version = choose(workflow, versions, which)
        definition = await definition_of(reader, version)
        aliases = await reader.library.aliases(workflow)
        hidden = any(
            each.hidden for each in await reader.library.entries(hidden=True) if each.workflow == workflow
        )
    if wanted == "yaml":
        from rune.cli.yamlout import print_yaml  # noqa: PLC0415 - a slow import that few need

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
    newest = versions[: -MOST_VERSIONS - 1 : -1]
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


async def show_difference(reader: Reader, workflow: str, before: str, after: str, wanted: str) -> int:
    """What changed between two versions, as `text`, `json` or `unified` lines."""
    async with reader.still():
        versions = await reader.library.versions(workflow)
        pair = [choose(workflow, versions, which) for which in (before, after)]
        old, new = [await definition_of(reader, each) for each in pair]
    if wanted == "unified":
        _print_unified(pair, old, new)
        return 0
    from rune.core.difference import difference  # noqa: PLC0415 - lines need none of it

    changes = difference(old, new)
    if wanted == "json":
        import msgspec  # noqa: PLC0415

        print_json(
            {
                "workflow_id": workflow,
                "from": {"version": pair[0].number, "hash": pair[0].hash},
                "to": {"version": pair[1].number, "hash": pair[1].hash},
                "changes": [msgspec.to_builtins(each) for each in changes],
            }
        )
        return 0
    from rune.cli.differing import print_changes  # noqa: PLC0415

    if not changes:
        print(f"{label(pair[0])} and {label(pair[1])} are the same")
    else:
        print(paint(f"{workflow} {pair[0].number} → {pair[1].number}", "bold"))
        print_changes(changes)
    return 0


def _print_unified(pair: list[Version], old: dict[str, Any], new: dict[str, Any]) -> None:
    import difflib  # noqa: PLC0415

    def lines(definition: dict[str, Any]) -> list[str]:
        return json.dumps(definition, indent=2, sort_keys=True, ensure_ascii=False).splitlines()

    for line in difflib.unified_diff(
        lines(old), lines(new), label(pair[0]), label(pair[1]), lineterm="", n=3
    ):
        print(paint(clean(line), {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")))
