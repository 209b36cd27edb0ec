"""Random actions on every example and on generated documents, compared with the same actions on plain data. Undoing
them gives back the same characters."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from rune.documents.textedit import SourceText, TextEdit, TextEditError, apply_edits
from rune.documents.textedit.actions import Action, edits_of
from rune.documents.textedit.document import Format, inverse_edits
from rune.documents.textedit.updates import same
from tests.support.paths import EXAMPLE_WORKFLOWS
from tests.support.whole import WHOLE
from tests.unit.textedit.documents import TEXTS, generated
from tests.unit.textedit.plain import PlainDocument

DOCUMENTS = 1_000 if WHOLE else 16
SHARDS = 20 if WHOLE else 2
ACTIONS = 200 if WHOLE else 12  # of each document; the parser of YAML takes milliseconds for each of them


def random_actions(rng: Random, value: dict[str, Any]) -> list[Action]:
    """Return the actions of one gesture of an editor on a document."""
    nodes, edges = value["nodes"], value.get("edges") or []
    node: dict[str, Any] = rng.choice(nodes)
    match rng.randrange(16):
        case 0 if edges:
            at = rng.randrange(len(edges))
            return split_edge(edges[at], at, f"between_{rng.randrange(10**6)}")
        case 1:
            error = {"src": node["id"], "dst": f"m{rng.randrange(10**6)}", "is_error": True}
            policy: Action = {"do": "set", "path": ["nodes", nodes.index(node), "error"], "value": "branch"}
            return [{"do": "add_edge", "edge": error}, policy]
        case 2:
            chosen = rng.sample(nodes, min(3, len(nodes)))
            return [
                {"do": "move_node", "id": each["id"], "position": {"x": 40, "y": 90 * at}}
                for at, each in enumerate(chosen)
            ]
        case 3:
            return [{"do": "add_node", "node": {**node, "id": f"copy_{rng.randrange(10**6)}"}}]
        case 4 if node.get("parameters"):
            # The last key gets another name, as in a form.
            *kept, last = node["parameters"].items()
            named = {**dict(kept), f"k{rng.randrange(10**6)}": last[1]}
            return [{"do": "set", "path": ["nodes", nodes.index(node), "parameters"], "value": named}]
        case _:
            return [random_action(rng, value)]


def split_edge(edge: dict[str, Any], at: int, id: str) -> list[Action]:
    """Return the actions that put a node into the middle of an edge."""
    label = {"label": edge["label"]} if "label" in edge else {}
    return [
        {"do": "add_node", "node": {"id": id, "type": "noop"}},
        {"do": "remove_edge", "index": at},
        {"do": "add_edge", "edge": {"src": edge["src"], "dst": id, **label}},
        {"do": "add_edge", "edge": {"src": id, "dst": edge["dst"]}},
    ]


def mention(rng: Random, key: str, nodes: list[dict[str, Any]]) -> str:
    """Return a text that refers to two nodes, as the value of a parameter."""
    first, second = rng.choice(nodes)["id"], rng.choice(nodes)["id"]
    if key == "expression":
        return f"${first}.a < ${second}.b"
    return rng.choice(
        (
            f"{{{{ ${first}.a + ${second}.b }}}}",
            f"${first}.a costs ${second}.b, $$5",
            f"{{{{ $node.{first}.a }}}} and {{{{ 'a' + ${second}[0] }}}}",
        )
    )


def random_action(rng: Random, value: dict[str, Any]) -> Action:
    """Return an action of an editor on a document."""
    nodes, edges = value["nodes"], value.get("edges") or []
    at = rng.randrange(len(nodes))
    node: dict[str, Any] = nodes[at]
    parameters = node["parameters"] if isinstance(node.get("parameters"), dict) else {}
    match rng.randrange(12):
        case 0:
            added = {"id": f"new_{rng.randrange(10**6)}", "type": "noop"}
            if rng.random() < 0.5:
                added["parameters"] = {"a": rng.choice(TEXTS)}  # type: ignore[assignment]
            return {"do": "add_node", "node": added, "index": rng.randint(0, len(nodes))}
        case 1 | 2 if len(nodes) > 1:
            return {"do": "remove_node", "id": node["id"]}
        case 3:
            position = {"x": rng.randrange(999), "y": rng.randrange(999)}
            return {"do": "move_node", "id": node["id"], "position": position}
        case 4:
            edge = {"src": node["id"], "dst": f"m{rng.randrange(10**6)}"}
            return {"do": "add_edge", "edge": edge, "index": rng.randint(0, len(edges))}
        case 5 if edges:
            return {"do": "remove_edge", "index": rng.randrange(len(edges))}
        case 6 if parameters:
            key = rng.choice(["note", *parameters])
            return {"do": "set", "path": ["nodes", at, "parameters", key], "value": rng.choice(TEXTS)}
        case 7 if parameters:
            return {"do": "remove", "path": ["nodes", at, "parameters", rng.choice(list(parameters))]}
        case 8:
            chosen = rng.choice([30, 1.5, "x", {"a": [1, {"b": None}]}, [], True])
            key = rng.choice(["timeout", "name", "metadata"])
            return {"do": "set", "path": ["nodes", at, key], "value": chosen}
        case 9 if "parameters" in node:
            key = rng.choice(["note", "expression"])
            return {"do": "set", "path": ["nodes", at, "parameters", key], "value": mention(rng, key, nodes)}
        case 9 | 10:
            return {"do": "rename_node", "id": node["id"], "to": f"r{rng.randrange(10**6)}"}
        case _:
            return {"do": "insert", "path": ["labels"], "value": rng.choice(TEXTS)}


def check_actions(text: str, format: Format, seed: int) -> None:
    rng = Random(seed)
    source = SourceText(text, format)
    expected = PlainDocument(source.value)
    undos: list[list[TextEdit]] = []
    refused = 0
    for _ in range(ACTIONS):
        for action in random_actions(rng, source.value):
            try:
                edits = edits_of(source, action)
            except TextEditError as error:
                # Only a comment that would lose its place makes an edit impossible.
                if "comment" not in error.message:
                    raise
                refused += 1
                break
            undos.append(inverse_edits(source.text, edits))
            expected.apply(action)
            edited = SourceText(apply_edits(source.text, edits), format)
            assert same(edited.value, expected.value), (seed, action, source.text, edited.text)
            source = edited
    assert refused < ACTIONS / 2

    last = source.text
    for edits in reversed(undos):
        last = apply_edits(last, edits)
    assert last == text


@pytest.mark.parametrize("path", EXAMPLE_WORKFLOWS, ids=lambda path: path.stem)
def test_example_after_random_actions_has_the_changed_value_and_undo_restores_its_text(path: Path) -> None:
    check_actions(path.read_text(encoding="utf-8"), "yaml", len(path.stem))


@pytest.mark.parametrize("shard", range(SHARDS))
def test_generated_document_after_random_actions_has_the_changed_value_and_undo_restores_its_text(
    shard: int,
) -> None:
    for seed in range(shard, DOCUMENTS, SHARDS):
        check_actions(*generated(seed), seed)
