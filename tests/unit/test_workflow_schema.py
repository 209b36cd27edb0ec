"""The JSON Schema of workflow documents accepts what the loader accepts, and marks typical mistakes."""

from __future__ import annotations

import copy
import functools
import json
import pathlib
from typing import Any

import pytest
from jsonschema import Draft7Validator

from rune.core.definition import fields
from rune.core.definition.parser import _DOCUMENT, _EDGE, _NODE
from rune.documents.json_schema import workflow_schema
from rune.documents.loader import check_document, load_document
from rune.documents.yaml import decode_yaml
from rune.nodes.registry import STANDARD, full_registry, standard_catalogue
from tests.acceptance.conformance import case as cases
from tests.support.documents import document, node
from tests.support.paths import EXAMPLE_WORKFLOWS, ROOT


@functools.cache
def validator() -> Draft7Validator:
    return Draft7Validator(workflow_schema(standard_catalogue()))


def mistakes(raw: Any, schema: Draft7Validator | None = None) -> list[str]:
    return [f"{each.json_path}: {each.message}" for each in (schema or validator()).iter_errors(raw)]


def is_valid(raw: Any) -> bool:
    return check_document(load_document(json.dumps(raw)), standard_catalogue()).valid


def conformance_documents() -> list[tuple[str, Any]]:
    """The documents of all conformance cases, as plain data."""
    found: list[tuple[str, Any]] = []
    for case in (*cases.load(), *cases.load_steps()):
        documents = [case.document, *case.workflows, *(step.get("deploy") for step in case.steps)]
        found += [(case.name, cases.expand(each)) for each in documents if isinstance(each, dict)]
        if case.text is not None:
            read = decode_yaml if case.suffix == "yaml" else None
            if read is not None:
                found.append((case.name, read(case.text, max_bytes=10**7, max_depth=100).value))
    return found


def test_schema_is_a_json_schema() -> None:
    Draft7Validator.check_schema(workflow_schema(standard_catalogue()))


@pytest.mark.parametrize("path", EXAMPLE_WORKFLOWS, ids=lambda path: path.stem)
def test_every_example_matches(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = decode_yaml(path.read_bytes(), max_bytes=10**6, max_depth=100).value
    own = [each.name for each in (path.parent / "src").glob("*") if each.is_dir()]
    monkeypatch.syspath_prepend(str(path.parent / "src"))

    schema = workflow_schema(full_registry(own).catalogue)

    assert mistakes(raw, Draft7Validator(schema)) == []


def test_every_valid_conformance_document_matches() -> None:
    documents = conformance_documents()
    valid = [(name, raw) for name, raw in documents if is_valid(raw)]

    assert len(valid) > 150
    few = [(name, {**raw, "nodes": raw["nodes"][:60], "edges": raw.get("edges")}) for name, raw in valid]
    assert {name: found for name, raw in few if (found := mistakes(raw))} == {}


GOOD: dict[str, Any] = {
    "id": "order",
    "settings": {"timeout": 60, "priority": 5},
    "nodes": [
        {"id": "start", "type": "input"},
        {
            "id": "fetch",
            "type": "http",
            "parameters": {"url": "https://shop.example", "timeout": "{{ $trigger.t }}", "max_bytes": "1000"},
            "retry": {"max_attempts": 3},
            "credentials": {"name": "shop"},
            "error": {"type": "branch", "error_edge": "e"},
        },
        {"id": "pick", "handler": "switch", "config": {"rules": [{"value": "$json.n", "compare": 1}]}},
        {"id": "a", "type": "noop", "name": None, "parameters": None, "dependencies": ["pick"]},
    ],
    "edges": [{"src": "start", "dst": "fetch", "label": True}, {"id": "e", "src": "fetch", "dst": "pick"}],
}


def changed(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """The good document with one change; `...` removes the field."""
    raw = copy.deepcopy(GOOD)
    target: Any = raw
    for key in path[:-1]:
        target = target[key]
    if value is ...:
        del target[path[-1]]
    else:
        target[path[-1]] = value
    return raw


def test_document_without_mistakes_matches() -> None:
    assert mistakes(GOOD) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("nodes",), ...),
        (("nodes",), []),
        (("nodes", 0, "id"), ...),
        (("nodes", 0, "id"), "no spaces"),
        (("nodes", 0, "type"), ...),
        (("nodes", 0, "type"), "inptu"),
        (("nodes", 2, "handler"), "swtich"),
        (("nodes", 0, "colour"), "red"),
        (("nodes", 1, "parameters"), ...),
        (("nodes", 1, "parameters", "url"), ...),
        (("nodes", 1, "parameters", "urll"), "x"),
        (("nodes", 1, "parameters", "timeout"), "soon"),
        (("nodes", 1, "parameters", "timeout"), []),
        (("nodes", 1, "parameters", "method"), "FETCH IT"),
        (("nodes", 2, "config", "rules"), []),
        (("nodes", 2, "config", "rules", 0, "operator"), "=~"),
        (("nodes", 1, "retry", "max_attempts"), 0),
        (("nodes", 1, "retry", "attempts"), 3),
        (("nodes", 1, "timeout"), 0),
        (("nodes", 1, "join"), "some"),
        (("nodes", 1, "error"), "explode"),
        (("nodes", 1, "error", "type"), ...),
        (("nodes", 1, "credentials"), {"password": "hunter2"}),
        (("nodes", 1, "credentials", "password"), "hunter2"),
        (("nodes", 3, "dependencies"), "pick"),
        (("settings", "priority"), 11),
        (("settings", "timeout"), "1h"),
        (("edges", 0, "src"), ...),
        (("edges", 0, "from"), "start"),
        (("edges", 0, "is_error"), "yes"),
        (("inputs",), "object"),
        (("version",), 2),
    ],
    ids=lambda part: ".".join(map(str, part)) if isinstance(part, tuple) else str(part)[:20],
)
def test_typical_mistake_does_not_match(path: tuple[str | int, ...], value: Any) -> None:
    raw = changed(path, value)

    assert mistakes(raw)
    assert not is_valid(raw)


@pytest.mark.parametrize("kind", STANDARD, ids=lambda kind: kind.name)
def test_parameters_of_every_type_are_checked(kind: Any) -> None:
    for name in (kind.name, *kind.aliases):
        found = mistakes(document([node("a", name, {"no_such_parameter": 1})]))
        assert any("no_such_parameter" in each for each in found)


@pytest.mark.parametrize(
    ("definition", "readers"),
    [
        ("settings", fields._SETTINGS_READERS),
        ("retry", fields._RETRY_READERS),
        ("node", _NODE),
        ("edge", _EDGE),
        (None, _DOCUMENT),
    ],
)
def test_schema_has_the_fields_that_the_loader_reads(definition: str | None, readers: Any) -> None:
    schema = workflow_schema(standard_catalogue())
    part = schema if definition is None else schema["definitions"][definition]

    assert set(part["properties"]) == set(readers)


@pytest.mark.parametrize(
    "value", [-1, 0, 0.5, 1, 1.5, 2, 10, 11, 100, 101, 1000, 1001, 10**6, 10**8, True, "1", []]
)
@pytest.mark.parametrize(
    ("definition", "readers"), [("settings", fields._SETTINGS_READERS), ("retry", fields._RETRY_READERS)]
)
def test_schema_has_the_bounds_of_the_loader(definition: str, readers: Any, value: Any) -> None:
    for name, reader in readers.items():
        problems: list[Any] = []
        reader(value, name, problems)
        part = {**workflow_schema(standard_catalogue()), "$ref": f"#/definitions/{definition}"}
        raw = {name: value}
        inner = Draft7Validator({"definitions": part["definitions"], "$ref": part["$ref"]})
        assert bool(list(inner.iter_errors(raw))) == bool(problems), name


def test_shipped_schema_is_current() -> None:
    shipped = json.loads((ROOT / "docs" / "schemas" / "workflow.json").read_text(encoding="utf-8"))

    assert shipped == workflow_schema(standard_catalogue()), "rune schema > docs/schemas/workflow.json"
