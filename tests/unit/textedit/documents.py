"""Workflow documents for the tests of text edits: generated ones in many styles of YAML and JSON."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

from rune.build.graph import Comments
from rune.build.writer import to_yaml
from rune.documents.textedit.document import Format
from tests.simulation.oracle.document import to_document
from tests.simulation.oracle.generate import random_model

TEXTS = (
    "plain",
    "a: b",
    "{{ $x.y }}",
    "two\nlines\n",
    "",
    "yes",
    "12",
    "it's",
    "ü\u2028",
    " space ",
    "#no",
    "- dash",
    "a\n\nb",
    "tab\there",
    "{a}",
    "null",
)


def generated(seed: int) -> tuple[str, Format]:
    """Return the text of a generated document: YAML with comments, blank lines and both line endings, or JSON."""
    rng = Random(seed)
    document = to_document(random_model(seed)[0])
    for node in document["nodes"]:
        if rng.random() < 0.3:
            node.setdefault("parameters", {})["note"] = rng.choice(TEXTS)
    if rng.random() < 0.4:
        _without_edge_ids(document)
    style = rng.randrange(6)
    if style == 0:
        return json.dumps(document, ensure_ascii=rng.random() < 0.5, indent=rng.choice((2, 4))), "json"
    if style == 1:
        separators = rng.choice(((",", ":"), (", ", ": ")))
        return json.dumps(document, separators=separators), "json"
    if style == 2:
        return _flow(rng, document), "yaml"
    return _decorated(rng, to_yaml(document, None, Comments())), "yaml"


def _without_edge_ids(document: dict[str, Any]) -> None:
    """Leave out the ids of edges that get an id of their own from their ends; error policies then name that one."""
    pairs = Counter((each["src"], each["dst"]) for each in document["edges"])
    generated: dict[str, str] = {}
    for edge in document["edges"]:
        if pairs[edge["src"], edge["dst"]] == 1:
            generated[edge.pop("id")] = f"{edge['src']}-{edge['dst']}"
    for node in document["nodes"]:
        policy = node.get("error", {})
        if policy.get("error_edge") in generated:
            policy["error_edge"] = generated[policy["error_edge"]]


def _flow(rng: Random, document: dict[str, Any]) -> str:
    """Return YAML with one node and one edge per line; JSON is YAML."""
    dash = rng.choice(("- ", "  - "))
    lines = [f"id: {document['id']}"]
    for name in ("nodes", "edges"):
        lines.append(f"{name}:" if document[name] else f"{name}: []")
        lines += [f"{dash}{json.dumps(each, ensure_ascii=False)}" for each in document[name]]
    return "\n".join(lines).replace("\u2028", "\\u2028") + "\n"


def _decorated(rng: Random, text: str) -> str:
    """Return a YAML text with comments above entries, comments behind keys and blank lines between nodes."""
    made: list[str] = []
    separated = rng.random() < 0.4
    kept = False
    literal = 0  # the column of a block of text, inside of which nothing is a comment
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip(" "))
        if literal and (indent >= literal or not line.strip()):
            made.append(line)
            continue
        if literal and kept:
            made.append("")
        literal = 0
        if line.lstrip(" ").startswith("- "):
            if separated:
                made.append("")
            if rng.random() < 0.2:
                made.append(f"{' ' * indent}# about the next entry")
        if line.endswith(("|", "|-")):
            literal = indent + 1
            kept = line.endswith("|") and rng.random() < 0.3  # the blank line below it belongs to the text
        is_plain = not line.endswith(('"', "'", "|", "|-"))
        mark = "+" if literal and kept else "   # a comment" if is_plain and rng.random() < 0.1 else ""
        made.append(line + mark)
    if rng.random() < 0.3:
        made.insert(0, "# A document.")
    ending = rng.choice(("\n", "\n", "\n", "\r\n"))
    return ending.join(made) + (ending if rng.random() < 0.8 else "")
