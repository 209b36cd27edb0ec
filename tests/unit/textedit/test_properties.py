"""Properties of text edits on all examples and on generated documents, with random changes."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rune.build.graph import Comments
from rune.build.writer import to_yaml
from rune.documents.textedit import SourceText, update
from rune.documents.textedit.document import decode
from rune.documents.textedit.updates import same
from tests.simulation.oracle.document import to_document
from tests.simulation.oracle.generate import random_model
from tests.support.paths import EXAMPLE_WORKFLOWS
from tests.support.whole import WHOLE

SEEDS = 200 if WHOLE else 6
CHANGES = 12  # of each document; parsing YAML several times per change is slow


def random_change(rng: Random, document: dict[str, Any]) -> dict[str, Any]:
    """The document after one action of an editor."""
    made = copy.deepcopy(document)
    nodes, edges = made["nodes"], made.setdefault("edges", [])
    node: dict[str, Any] = rng.choice(nodes)
    kind = rng.randrange(9)
    if kind == 0:
        nodes.insert(rng.randint(0, len(nodes)), {"id": f"new_{rng.randrange(10**6)}", "type": "noop"})
    elif kind == 1 and len(nodes) > 1:
        nodes.remove(node)
        made["edges"] = [each for each in edges if node["id"] not in (each["src"], each["dst"])]
    elif kind == 2:
        node["position"] = {"x": rng.randint(0, 999), "y": rng.randint(0, 999)}
    elif kind == 3:
        edges.insert(rng.randint(0, len(edges)), {"src": node["id"], "dst": f"n{rng.randrange(10**6)}"})
    elif kind == 4 and edges:
        edges.pop(rng.randrange(len(edges)))
    elif kind == 5:
        parameters = node.setdefault("parameters", {})
        texts = ("plain", "a: b", "{{ $x.y }}", "two\nlines\n", "", "yes", "12", "it's", "ü\u2028", " space ")
        parameters[rng.choice(["note", *parameters])] = rng.choice(texts)
    elif kind == 6:
        parameters = node.get("parameters") or {}
        if parameters:
            del parameters[rng.choice(sorted(parameters))]
    elif kind == 7:
        node[rng.choice(["timeout", "name", "metadata"])] = rng.choice(
            [30, 1.5, "x", {"a": [1, {"b": None}]}, []]
        )
    elif len(nodes) > 1:
        nodes.insert(rng.randrange(len(nodes)), nodes.pop(rng.randrange(len(nodes))))
    return made


def check_changes(text: str, format: str, seed: int) -> None:
    rng = Random(seed)
    value = decode(text, format)  # type: ignore[arg-type]
    first, original = text, copy.deepcopy(value)
    for _ in range(CHANGES):
        value = random_change(rng, value)
        text = update(text, value, format)  # type: ignore[arg-type]
        assert same(decode(text, format), value)  # type: ignore[arg-type]
    assert update(first, original, format) == first  # type: ignore[arg-type]


@pytest.mark.parametrize("path", EXAMPLE_WORKFLOWS, ids=lambda path: path.stem)
def test_example_after_random_changes_holds_exactly_the_changed_value(path: Path) -> None:
    for seed in range(20 if WHOLE else 1):
        check_changes(path.read_text(encoding="utf-8"), "yaml", seed)


@pytest.mark.parametrize("format", ["yaml", "json", "compact"])
def test_generated_document_after_random_changes_holds_exactly_the_changed_value(format: str) -> None:
    for seed in range(SEEDS):
        document = to_document(random_model(seed)[0])
        if format == "yaml":
            text = to_yaml(document, None, Comments())
        else:
            text = json.dumps(document, indent=2 if format == "json" else None)
        check_changes(text, "yaml" if format == "yaml" else "json", seed)


@pytest.mark.parametrize("path", EXAMPLE_WORKFLOWS, ids=lambda path: path.stem)
def test_change_of_one_scalar_changes_only_its_line(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    value = SourceText(text).value
    for node in value["nodes"]:
        node["timeout"] = 77
        edited = update(text, value)
        old, new = text.splitlines(), edited.splitlines()
        assert [line for line in old if line not in new and "timeout" not in line] in (
            [],
            [*_inline(old, node)],
        )
        assert len(new) - len(old) in (0, 1)
        del node["timeout"]
        value = SourceText(text).value


def _inline(lines: list[str], node: dict[str, Any]) -> list[str]:
    """The line of a node that is written on one line."""
    return [line for line in lines if f"id: {node['id']}," in line and line.lstrip().startswith("- {")]


@pytest.mark.parametrize("path", EXAMPLE_WORKFLOWS, ids=lambda path: path.stem)
def test_comments_survive_every_change_that_keeps_their_node(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    value = SourceText(text).value
    value["nodes"].append({"id": "extra", "type": "noop"})
    value["nodes"][0]["position"] = {"x": 1, "y": 2}
    value["settings"] = {**value.get("settings", {}), "priority": 7}

    edited = update(text, value)

    assert [each for _, each in SourceText(edited).comments()] == [
        each for _, each in SourceText(text).comments()
    ]
