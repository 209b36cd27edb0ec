"""Random actions on every example and on generated documents, compared with the same actions on plain data. Undoing
them gives back the same characters."""

from __future__ import annotations

import copy
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rune.documents.textedit import SourceText, TextEdit, TextEditError, apply_edits
from rune.documents.textedit.actions import Action, edits_of, renamed
from rune.documents.textedit.document import Format, inverse_edits
from rune.documents.textedit.updates import same
from tests.support.paths import EXAMPLE_WORKFLOWS
from tests.support.whole import WHOLE
from tests.unit.textedit.documents import TEXTS, generated

DOCUMENTS = 1_000 if WHOLE else 16
SHARDS = 20 if WHOLE else 2
ACTIONS = 200 if WHOLE else 12  # of each document; the parser of YAML takes milliseconds for each of them


def random_action(rng: Random, value: dict[str, Any]) -> Action:
    """Return an action of an editor on a document."""
    nodes, edges = value["nodes"], value.get("edges") or []
    at = rng.randrange(len(nodes))
    node: dict[str, Any] = nodes[at]
    parameters = node["parameters"] if isinstance(node.get("parameters"), dict) else {}
    match rng.randrange(11):
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
        case 9:
            return {"do": "rename_node", "id": node["id"], "to": f"r{rng.randrange(10**6)}"}
        case _:
            return {"do": "insert", "path": ["labels"], "value": rng.choice(TEXTS)}


def applied(before: dict[str, Any], action: Action) -> dict[str, Any]:
    """Return the document after the same action on plain data."""
    value = copy.deepcopy(before)
    match action["do"]:
        case "add_node" | "add_edge":
            kind = action["do"].removeprefix("add_")
            _list(value, f"{kind}s").insert(action["index"], action[kind])
        case "remove_node":
            gone = action["id"]
            value["nodes"] = [each for each in value["nodes"] if each["id"] != gone]
            if "edges" in value:
                value["edges"] = [each for each in value["edges"] if gone not in (each["src"], each["dst"])]
            for node in value["nodes"]:
                if "dependencies" in node:
                    node["dependencies"] = [each for each in node["dependencies"] if each != gone]
        case "move_node":
            next(each for each in value["nodes"] if each["id"] == action["id"])["position"] = action[
                "position"
            ]
        case "remove_edge":
            del value["edges"][action["index"]]
        case "insert":
            _list(value, *action["path"]).append(action["value"])
        case "rename_node":
            return renamed(value, {action["id"]: action["to"]})  # type: ignore[no-any-return]
        case "set":
            _owner(value, action["path"])[action["path"][-1]] = action["value"]
        case "remove":
            del _owner(value, action["path"])[action["path"][-1]]
    return value


def _list(value: dict[str, Any], name: str) -> list[Any]:
    if not isinstance(value.get(name), list):
        value[name] = []
    return value[name]  # type: ignore[no-any-return]


def _owner(value: Any, path: list[Any]) -> Any:
    for key in path[:-1]:
        value = value[key]
    return value


def check_actions(text: str, format: Format, seed: int) -> None:
    rng = Random(seed)
    source = SourceText(text, format)
    undos: list[list[TextEdit]] = []
    refused = 0
    for _ in range(ACTIONS):
        action = random_action(rng, source.value)
        try:
            edits = edits_of(source, action)
        except TextEditError as error:
            # Only a comment that would lose its place makes an edit impossible.
            if "comment" not in error.message:
                raise
            refused += 1
            continue
        undos.append(inverse_edits(source.text, edits))
        edited = SourceText(apply_edits(source.text, edits), format)
        assert same(edited.value, applied(source.value, action)), (seed, action, source.text, edited.text)
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
