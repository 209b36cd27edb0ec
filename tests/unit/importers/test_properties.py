"""Whatever is given to an importer gives a valid document, a report with its problems, or a clear error."""

from __future__ import annotations

import copy
import json
import pathlib
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rune.core.definition.strict_json import join, walk
from rune.core.limits import LIMITS
from rune.documents.importers import Import, import_document
from rune.documents.importers.draft import STATUSES
from rune.documents.importers.importer import decode_source
from rune.errors import InvalidDocumentError
from rune.nodes.registry import standard_catalogue
from tests.unit.importers.cases import FORMATS, SOURCES, case_name
from tests.unit.importers.test_cases import covered, leaves

LOADED = {case_name(path): decode_source(path.read_bytes()) for path in SOURCES}
NUMBERS = st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def imported(source: Any, **options: Any) -> Import | None:
    """Import a value; None if it is refused with problems."""
    try:
        return import_document(json.dumps(source), standard_catalogue(), **options)
    except InvalidDocumentError as refusal:
        if not refusal.problems or not all(each.message for each in refusal.problems):
            raise
        return None


def check(found: Import, source: Any) -> None:
    """An import covers its source, and a document that is not valid has its problems in the report."""
    entries = {each.source for each in found.report.entries}
    assert [path for path in leaves(source) if not covered(path, entries)] == []
    assert all(
        each.status in STATUSES and (each.message or each.status == "carried")
        for each in found.report.entries
    )
    if found.report.complete:
        assert not any(each.severity == "error" for each in found.report.problems)
    json.dumps(found.document, allow_nan=False)


@st.composite
def damaged(draw: st.DrawFn) -> Any:
    """A case of which some parts are replaced, removed or added."""
    source = copy.deepcopy(LOADED[draw(st.sampled_from(sorted(LOADED)))])
    for _ in range(draw(st.integers(1, 4))):
        holders = [part for _, part in walk(source) if isinstance(part, dict | list) and part]
        holder = draw(st.sampled_from(holders)) if holders else source
        if isinstance(holder, dict):
            key = draw(st.sampled_from([*holder, "unknownField"]))
            if draw(st.booleans()) or key not in holder:
                holder[key] = draw(JSON)
            else:
                del holder[key]
        elif isinstance(holder, list) and holder:
            at = draw(st.integers(0, len(holder) - 1))
            if draw(st.booleans()):
                holder[at] = draw(JSON)
            else:
                holder.append(copy.deepcopy(holder[at]))
    return source


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damaged())
def test_import_of_damaged_document_is_covered_or_refused(source: Any) -> None:
    found = imported(source)

    if found is not None:
        check(found, source)


@settings(max_examples=60, deadline=None)
@given(JSON, st.sampled_from([None, *FORMATS]))
def test_import_of_any_value_is_covered_or_refused(source: Any, format: str | None) -> None:
    found = imported(source, format=format)

    if found is not None:
        check(found, source)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_import_of_any_bytes_is_refused_with_problems(data: bytes) -> None:
    with pytest.raises(InvalidDocumentError) as refused:
        import_document(data, standard_catalogue())

    assert refused.value.problems


@pytest.mark.parametrize("path", SOURCES, ids=case_name)
def test_unknown_field_is_reported_at_its_path(path: pathlib.Path) -> None:
    source = decode_source(path.read_bytes())
    complete = imported(source)
    assert complete is not None
    gaps = {each.source for each in complete.report.entries if each.status == "by_hand"}
    kept = {each.source for each in complete.report.entries if each.target.startswith(("metadata", "notes"))}
    places = [
        (place, part)
        for place, part in walk(source)
        if isinstance(part, dict) and place and not any(covered(place, {each}) for each in gaps | kept)
    ]
    for _, part in places:
        part["zzUnknown"] = "x"
    found = imported(source)
    assert found is not None
    entries = {each.source for each in found.report.entries}
    assert [place for place, _ in places if not covered(join(place, "zzUnknown"), entries)] == []


def test_document_beyond_the_size_limit_is_refused_with_the_limit() -> None:
    with pytest.raises(InvalidDocumentError, match=f"at most {LIMITS.definition_bytes:,} are allowed"):
        import_document("[" + " " * LIMITS.definition_bytes + "]", standard_catalogue())


def test_document_beyond_the_depth_limit_is_refused_with_the_limit() -> None:
    with pytest.raises(InvalidDocumentError, match=f"nested deeper than {LIMITS.json_depth} levels"):
        import_document("[" * 200 + "]" * 200, standard_catalogue())


def test_canvas_beyond_the_node_limit_is_refused_with_the_limit() -> None:
    nodes = [{"id": str(at), "type": "log", "data": {"message": "x"}} for at in range(LIMITS.nodes + 1)]

    with pytest.raises(
        InvalidDocumentError, match=f"nodes of the imported document: at most {LIMITS.nodes:,}"
    ):
        import_document(json.dumps({"nodes": nodes, "edges": []}), standard_catalogue())


def test_unknown_document_is_refused_with_the_known_formats() -> None:
    with pytest.raises(InvalidDocumentError) as refused:
        import_document('{"jobs": {}}', standard_catalogue())

    assert refused.value.problems[0].code == "UNKNOWN_SOURCE"
    assert "`canvas`" in refused.value.problems[0].hint


def test_document_of_another_format_than_named_is_refused() -> None:
    with pytest.raises(InvalidDocumentError, match="not in the format `canvas`"):
        import_document('{"nodes": [], "connections": {}}', standard_catalogue(), format="canvas")


def test_n8n_export_of_many_connected_nodes_is_imported_within_ten_seconds() -> None:
    """The work grows with the size of the graph, not with its square."""
    names = [f"n{at}" for at in range(400)]
    kinds = ["manualTrigger", *(["if", "noOp", "set"] * 133)]
    nodes = [
        {"name": name, "type": f"n8n-nodes-base.{kind}", "parameters": {}}
        for name, kind in zip(names, kinds, strict=True)
    ]
    connections = {
        name: {"main": [[{"node": other, "type": "main", "index": 0} for other in names[at + 1 : at + 4]]]}
        for at, name in enumerate(names)
    }
    started = time.process_time()

    found = imported({"nodes": nodes, "connections": connections})

    assert found is not None
    # Beside each node of the source are those that keep what arrives where branches meet, at most one for each link.
    ids = [each["id"] for each in found.document["nodes"]]
    assert set(names) <= set(ids)
    assert len(ids) <= len(names) + 3 * len(names)
    assert not any(each.severity == "error" for each in found.report.problems)
    assert time.process_time() - started < 10


@pytest.mark.parametrize(
    ("kind", "parameters", "reason"),
    [
        ("switch", {"rules": {"rules": [{"value2": 1, "output": 10**12}]}}, "more than 100 outputs"),
        ("switch", {"mode": "expression", "output": 0, "numberOutputs": 10**12}, "more than 100 outputs"),
    ],
)
def test_n8n_node_beyond_a_limit_becomes_a_gap_that_names_it(kind: str, parameters: Any, reason: str) -> None:
    nodes = [{"name": "a", "type": f"n8n-nodes-base.{kind}", "parameters": parameters}]

    found = imported({"nodes": nodes, "connections": {}})

    assert found is not None
    assert [each.message for each in found.report.entries] == [reason]
