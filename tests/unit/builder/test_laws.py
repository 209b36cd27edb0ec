"""The laws of the round trip between documents and Python: on examples, conformance cases and generated documents."""

from __future__ import annotations

import builtins
import json
import keyword
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import rune.build
from rune.build import Workflow
from rune.build.code_check import IMPORTED, ROOTS
from rune.build.operations import load_source
from rune.core.definition.model import canonical
from rune.core.definition.parser import parse_data
from rune.core.definition.strict_json import Decoded
from rune.documents.loader import load_document
from tests.acceptance.conformance.case import expand, load, load_steps
from tests.simulation.oracle.document import to_document
from tests.simulation.oracle.generate import random_model
from tests.support.paths import EXAMPLE_WORKFLOWS
from tests.support.static_checks import lines_found_by_mypy, lines_found_by_ruff
from tests.support.whole import WHOLE

BLOCK = 500 if WHOLE else 125
GENERATED = range(0, 10_000 if WHOLE else 250, BLOCK)
"""The first seed of each block of generated documents."""


def conformance_documents() -> Iterator[tuple[str, Any]]:
    for case in (*load(), *load_steps()):
        if case.document is not None:
            yield case.name, expand(case.document)
        for at, each in enumerate(case.workflows):
            yield f"{case.name}-{at}", expand(each)


TAKEN = sorted(
    {
        *rune.build.__all__,
        *IMPORTED,
        *ROOTS,
        *keyword.kwlist,
        *keyword.softkwlist,
        *dir(builtins),
        "flow",
        "rune",
    }
)
"""Names that mean something in Python, in `rune.build` or in the code that is written."""


def canonical_form(document: Any) -> bytes | None:
    """The canonical form of a document that can be parsed; None for any other."""
    parsed = parse_data(Decoded(document))
    return None if parsed.definition is None or parsed.refused else canonical(parsed.definition)


def check_python(flow: Workflow) -> None:
    """Law 2: the code builds the same workflow, and the same code again."""
    code = flow.to_python()
    built = load_source(code)
    assert canonical(built.definition) == canonical(flow.definition)
    assert built.to_python() == code


@pytest.mark.parametrize("path", EXAMPLE_WORKFLOWS, ids=lambda path: path.stem)
def test_example_passes_all_laws(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    flow = Workflow.load(path)
    expected = load_document(path).definition

    assert expected is not None
    assert canonical(flow.definition) == canonical(expected)
    assert flow.to_yaml() == text
    check_python(flow)
    assert Workflow.load(load_source(flow.to_python()).to_yaml()) == flow


def named(flow: str, *ids: str) -> Workflow:
    """A workflow with these ids whose nodes follow each other and read what the first one returns."""
    nodes = [
        {"id": id, "type": "log", "parameters": {"message": f"${ids[0]}.a" if at else "begun"}}
        for at, id in enumerate(ids)
    ]
    edges = [{"src": src, "dst": dst} for src, dst in pairwise(ids)]
    return Workflow.load({"id": flow, "nodes": nodes, "edges": edges})


@pytest.mark.parametrize("name", TAKEN)
def test_node_and_workflow_may_have_a_name_that_the_code_uses(name: str) -> None:
    check_python(named(name, name, f"{name}_", f"{name}_2"))


def test_nodes_may_have_all_names_that_the_code_uses() -> None:
    check_python(named("w", *TAKEN))


def test_conformance_documents_pass_laws_1_and_2() -> None:
    names = [name for name, _ in conformance_documents()]
    for name, document in conformance_documents():
        flow = Workflow.load(document)
        form = canonical_form(document)
        if form is None:
            assert flow.to_dict() == document, name
            continue
        assert canonical(flow.definition) == form, name
        if not any(each.code == "DUPLICATE_ID" for each in flow.check()):
            check_python(flow)

    assert len(names) >= 138


def test_conformance_texts_pass_law_3() -> None:
    texts = [case for case in (*load(), *load_steps()) if case.text is not None]
    for case in texts:
        assert case.text is not None
        flow = Workflow.from_text(case.text, case.suffix)
        written = flow.to_json() if case.suffix == "json" else flow.to_yaml()
        assert written == case.text, case.name

    assert texts


@pytest.mark.parametrize("first", GENERATED)
def test_generated_documents_pass_laws_1_to_3(first: int) -> None:
    for seed in range(first, first + BLOCK):
        document = to_document(random_model(seed)[0])
        flow = Workflow.load(document)
        assert canonical(flow.definition) == canonical_form(document), seed
        check_python(flow)
        text = flow.to_json()
        loaded = Workflow.load(text)
        assert loaded.to_json() == text, seed
        if WHOLE or seed % 25 == 0:
            # Parsing YAML is slow: fewer of them in an ordinary run.
            text = flow.to_yaml()
            loaded = Workflow.load(text)
            assert loaded == flow, seed
            assert loaded.to_yaml() == text, seed


@pytest.mark.parametrize("first", GENERATED)
def test_ruff_and_mypy_accept_the_code_of_generated_documents(first: int, tmp_path: Path) -> None:
    # Type checking is slow: fewer of them in an ordinary run.
    files = [
        tmp_path / f"generated_{seed}.py" for seed in range(first, first + BLOCK) if WHOLE or seed % 25 == 0
    ]
    for seed, file in zip(range(first, first + BLOCK, 1 if WHOLE else 25), files, strict=True):
        code = Workflow.load(to_document(random_model(seed)[0])).to_python()
        file.write_text(code, encoding="utf-8")

    assert lines_found_by_ruff(tmp_path) == ""
    assert lines_found_by_mypy(*files) == []


def test_comments_and_everything_else_survive_the_way_through_python() -> None:
    text = """# Watches prices.
id: watch

nodes:
  # The start payload.
  - id: start
    type: input
    position: {x: 1, y: 2}
    notes: keep me

  - id: quote  # asks the shop
    type: log
    parameters: {message: "{{ $start.sku }}"}
    metadata: {owner: [a, b]}

edges:
  # Always.
  - {src: start, dst: quote}  # at once
"""
    flow = Workflow.load(text)

    back = load_source(flow.to_python())

    assert back.comments.header == ["Watches prices."]
    assert back.comments.nodes["start"].lead == ["The start payload."]
    assert back.comments.nodes["quote"].trailing == "asks the shop"
    assert back.comments.edges[0].lead == ["Always."]
    assert back.comments.edges[0].trailing == "at once"
    assert back == flow
    written = back.to_yaml()
    assert [line.strip() for line in written.splitlines() if "#" in line] == [
        "# Watches prices.",
        "# The start payload.",
        "- id: quote  # asks the shop",
        "# Always.",
        "- { src: start, dst: quote }  # at once",
    ]


def test_comments_elsewhere_are_listed() -> None:
    flow = Workflow.load(
        "id: a\nnodes:\n  - id: start\n    # about the type\n    type: input\nedges: []  # none\n"
    )

    assert flow.comments.others == [(4, "# about the type"), (6, "# none")]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("id: a\nnodes: [\n", "NOT_YAML"),
        ("- 1\n- 2\n", "WRONG_TYPE"),
        ('{"id": "a", "nodes": [{"id": "x"}]}', "MISSING_FIELD"),
        ("id: a\nid: b\nnodes: [{id: n, type: input}]\n", "DUPLICATE_KEY"),
        ("id: a\nnodes:\n  - {id: n, type: nothing}\nedges: [{src: n, dst: m}]\n", "UNKNOWN_TYPE"),
    ],
)
def test_invalid_document_loads_with_its_problems_and_keeps_its_text(text: str, code: str) -> None:
    flow = Workflow.load(text)

    assert code in {each.code for each in flow.check()}
    written = flow.to_json() if text.startswith("{") else flow.to_yaml()
    assert written == text


def test_change_in_python_edits_only_the_lines_concerned() -> None:
    path = next(each for each in EXAMPLE_WORKFLOWS if each.stem == "approval")
    before = path.read_text(encoding="utf-8")
    flow = Workflow.load(path)

    flow["ask"].data["timeout"] = 60
    flow["start"] >> flow["done"]

    after = flow.to_yaml()
    assert [line for line in after.splitlines() if line not in before.splitlines()] == [
        "    timeout: 60",
        "  - { src: start, dst: done }",
    ]
    assert len(after.splitlines()) == len(before.splitlines()) + 1


def test_generated_code_of_examples_has_no_names_that_ruff_refuses(tmp_path: Path) -> None:
    for path in EXAMPLE_WORKFLOWS:
        target = tmp_path / f"{path.stem.replace('-', '_')}.py"
        target.write_text(Workflow.load(path).to_python(), encoding="utf-8")

    assert lines_found_by_ruff(tmp_path) == ""


def test_json_document_keeps_its_layout_after_a_change() -> None:
    text = json.dumps({"id": "a", "nodes": [{"id": "n", "type": "input"}], "edges": []}, indent=4)
    flow = Workflow.load(text)

    flow["n"].data["name"] = "N"

    assert flow.to_json() == text.replace('"type": "input"', '"type": "input",\n            "name": "N"')
