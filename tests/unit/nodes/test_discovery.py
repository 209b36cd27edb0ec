"""Node types from modules and entry points."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from rune.nodes import registry
from rune.nodes.registry import NodeModuleError, full_registry, load_module

GOOD = """
from rune.nodes.custom import node

@node("acme.add", effectful=False)
def add(a: int, b: int = 1) -> int:
    return a + b

again = add
"""
TAKEN = GOOD.replace("acme.add", "edit")


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"acme_good": GOOD, "acme_taken": TAKEN, "acme_empty": "", "acme_broken": "1 / 0"}
    texts["acme_ends"] = "raise SystemExit(3)"
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(__import__("sys").modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))


def install_entry_points(monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    points = EntryPoints(EntryPoint("acme", value, registry.ENTRY_POINT_GROUP) for value in values)
    monkeypatch.setattr(registry, "_entry_points", lambda folders: tuple(points))


@pytest.mark.usefixtures("modules")
def test_load_module_returns_each_type_once() -> None:
    assert [each.type.name for each in load_module("acme_good")] == ["acme.add"]


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize("name", ["acme_empty", "acme_broken", "acme_absent", "acme_ends"])
def test_unusable_module_raises_with_name(name: str) -> None:
    with pytest.raises(NodeModuleError, match=name):
        load_module(name)


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize("value", ["acme_good", "acme_good:add"])
def test_entry_point_types_are_registered(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install_entry_points(monkeypatch, value)
    assert "acme.add" in full_registry()
    assert "edit" in full_registry()


@pytest.mark.usefixtures("modules")
def test_type_found_twice_is_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    install_entry_points(monkeypatch, "acme_good")
    assert "acme.add" in full_registry(["acme_good"])


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize("value", ["acme_broken", "acme_good:nope", "acme_empty"])
def test_unusable_entry_point_raises_with_name(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install_entry_points(monkeypatch, value)
    with pytest.raises(NodeModuleError, match=value):
        full_registry()


@pytest.mark.usefixtures("modules")
def test_taken_type_name_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    install_entry_points(monkeypatch)
    with pytest.raises(NodeModuleError, match="edit"):
        full_registry(["acme_taken"])
