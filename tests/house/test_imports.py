"""The law of imports, edge by edge: import-linter knows layers, this knows who may import whom."""

from __future__ import annotations

import pathlib

import pytest

from tests.house.tree import PACKAGE, imports, module_name, modules, name, parsed

EVERYWHERE = {"errors", "ids"}

# What each part of the package may import, besides itself and EVERYWHERE.
LAW: dict[str, set[str]] = {
    "core": set(),
    "yamltext": {"core"},
    "inputschema": {"core"},
    "documents": {"yamltext", "inputschema", "core"},
    "ports": {"core"},
    "wire": {"ports", "core"},
    "nodes": {"inputschema", "wire", "ports", "core"},
    "adapters": {"wire", "ports", "core", "settings", "telemetry"},
    "runtime": {"documents", "nodes", "wire", "ports", "core", "settings", "telemetry"},
    "master": {"documents", "runtime", "nodes", "wire", "ports", "core", "settings", "telemetry"},
    "compose": {
        "documents",
        "master",
        "runtime",
        "nodes",
        "wire",
        "ports",
        "core",
        "adapters",
        "settings",
        "telemetry",
    },
    "": {"client"},
    "client": set(),
    "__main__": {"cli"},
    "bench": {"compose", "runtime", "nodes", "wire", "ports", "core", "settings"},
    "cli": {
        "client",
        "documents",
        "bench",
        "compose",
        "master",
        "runtime",
        "nodes",
        "wire",
        "ports",
        "core",
        "settings",
        "telemetry",
        "sdk",
    },
    "sdk": {"documents", "core", "wire"},
    "testing": {"documents", "compose", "runtime", "nodes", "wire", "ports", "core", "settings", "sdk"},
    "telemetry": {"core", "settings"},
    "settings": {"ports"},
    "errors": set(),
    "ids": set(),
}


def part(module: str) -> str:
    """`core` for `rune.core.plan`; the empty text for `rune` itself."""
    return module.split(".")[1] if "." in module else ""


def test_every_part_of_the_package_has_its_place_in_the_law() -> None:
    parts = {
        path.stem if path.is_file() else path.name for path in PACKAGE.iterdir() if path.name[0].isalpha()
    }
    parts -= {"py"}  # py.typed

    assert parts <= LAW.keys(), "add the new part to LAW, to docs/architecture.md and to the contracts"


@pytest.mark.parametrize("path", modules(), ids=name)
def test_imports_follow_the_law(path: pathlib.Path) -> None:
    here = part(module_name(path))
    allowed = LAW.get(here, set()) | EVERYWHERE | {here}

    forbidden = [
        f"line {line}: {target}"
        for target, line in imports(parsed(path))
        if target.startswith("rune.") and part(target) in LAW and part(target) not in allowed
    ]

    assert forbidden == []


def test_only_compose_imports_adapters() -> None:
    importers = {
        part(module_name(path))
        for path in modules()
        for target, _ in imports(parsed(path))
        if target.startswith("rune.adapters")
    }

    assert importers <= {"compose", "adapters"}


def test_the_law_has_no_cycle() -> None:
    settled: set[str] = set()
    while ready := {here for here, below in LAW.items() if here not in settled and below <= settled}:
        settled |= ready

    assert settled == LAW.keys()
