"""Imported documents: pinned documents and reports, coverage of the source, and what their runs give."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any

import pytest

from rune.core.definition.strict_json import walk
from rune.documents.importers.draft import mapping
from rune.documents.importers.importer import decode_source
from tests.unit.importers.cases import FOLDER, SOURCES, case_name, described, imported, runs, snapshot
from tests.unit.importers.mocked import run_mocked

RUNS = runs()


@pytest.mark.parametrize("path", SOURCES, ids=case_name)
def test_import_of_case_equals_pinned_document_and_report(path: pathlib.Path) -> None:
    assert described(imported(path)) == json.loads(snapshot(path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", SOURCES, ids=case_name)
def test_report_of_case_covers_every_leaf_of_the_source(path: pathlib.Path) -> None:
    entries = {each.source for each in imported(path).report.entries}

    assert [place for place in leaves(decode_source(path.read_bytes())) if not covered(place, entries)] == []


@pytest.mark.parametrize("path", SOURCES, ids=case_name)
def test_import_of_case_is_valid(path: pathlib.Path) -> None:
    assert [each for each in imported(path).report.problems if each.severity == "error"] == []


@pytest.mark.parametrize("path", SOURCES, ids=case_name)
def test_targets_of_case_exist_in_the_document(path: pathlib.Path) -> None:
    found = imported(path)
    places = {place for place, _ in walk(found.document)}

    assert [each.target for each in found.report.entries if each.target and each.target not in places] == []


@pytest.mark.parametrize("path", SOURCES, ids=case_name)
def test_every_entry_about_a_node_names_it(path: pathlib.Path) -> None:
    found = imported(path)
    about = [each for each in found.report.entries if re.match(r"(workflow_data\.)?nodes\[", each.source)]
    about += [each for each in found.report.entries if re.match(r"States\.", each.source) and each.target]
    known = {each.get("name", each["id"]) for each in found.document["nodes"]}
    source = decode_source(path.read_bytes())
    graph = source.get("workflow_data", source)
    known |= {
        each.get("name") or mapping(each.get("data")).get("label") or each.get("id")
        for each in graph.get("nodes", ())
    }

    assert [each for each in about if each.node not in known and "nodes[" in each.source + each.target] == []


def test_every_case_is_run() -> None:
    assert {case_name(path) for path in SOURCES} == {name for name, _ in RUNS}


@pytest.mark.parametrize(("name", "run"), RUNS, ids=[f"{name}-{at}" for at, (name, _) in enumerate(RUNS)])
def test_run_of_imported_case_gives_what_the_source_gives(name: str, run: dict[str, Any]) -> None:
    result, mocks = run_mocked(
        imported(FOLDER / f"{name}.json").document,
        run.get("input", {}),
        run.get("mocks", {}),
        run.get("signals", {}),
    )

    outputs: dict[str, Any] = {}
    for each in result["nodes"]:
        if each["status"] == "success":
            outputs.setdefault(each["node_id"], []).append(each["output"])
    assert result["status"] == run.get("status", "completed"), result["error"]
    for node, expected in run.get("nodes", {}).items():
        assert outputs.get(node) == ([expected] if not run.get("several") else expected), node
    for node in run.get("not_run", ()):
        assert node not in outputs
    for node, expected in run.get("calls", {}).items():
        made = [{key: call[key] for key in expected[at]} for at, call in enumerate(mocks.calls.get(node, []))]
        assert made == expected
    if "error" in run:
        assert result["error"]["code"] == run["error"]


def leaves(source: Any) -> list[str]:
    return [path for path, part in walk(source) if not isinstance(part, dict | list) and part is not None]


def covered(place: str, entries: set[str]) -> bool:
    """Whether an entry is at the path or above it."""
    return any(
        place == each or (place.startswith(each) and place[len(each)] in ".[") for each in entries if each
    )
