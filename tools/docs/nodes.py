"""The reference of the node types, made from the catalogue. Every example is run, and its output is shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rune.build import Workflow
from rune.documents.draw.formats import draw_svg
from rune.documents.draw.model import draw_definition
from rune.documents.loader import check_document, load_document
from rune.nodes.registry import described, full_registry
from tools.docs.markdown import code, fence, page, schema_type, table

EXAMPLES = Path(__file__).resolve().parent / "examples"
FOLDER = "reference/nodes"
CATEGORIES = {
    "trigger": "Entries",
    "control": "Control",
    "data": "Data",
    "integration": "Input and output",
    "custom": "Custom",
}
_INPUT, _MOCKS = "# input: ", "# mock: "


def pages() -> dict[str, str]:
    """Return the page and the drawing of each node type, and the page that lists them."""
    types = described(full_registry(()))
    made = {f"{FOLDER}/index.md": _index(types)}
    for each in types:
        made |= _type_pages(each)
    return made


def _index(types: list[dict[str, Any]]) -> str:
    blocks = [
        "Every built-in node type, with its parameters, output and error codes. `rune nodes` prints the same for"
        " the types of an installation, custom ones included."
    ]
    for category, title in CATEGORIES.items():
        rows = [
            (f"[`{each['type']}`]({each['type']}.md)", _kind(each), each["summary"])
            for each in types
            if each["category"] == category
        ]
        if rows:
            blocks += [f"## {title}", table(("type", "kind", "summary"), rows)]
    return page("Node types", blocks)


def _kind(each: Mapping[str, Any]) -> str:
    words = ["effectful" if each["effectful"] else "pure"]
    words += ["trigger"] if each["trigger"] else []
    words += ["waits"] if each["waits"] else []
    words += ["fans out"] if each["fans_out"] else []
    words += ["gathers items"] if each["gathers_items"] else []
    return ", ".join(words)


def _type_pages(each: Mapping[str, Any]) -> dict[str, str]:
    name = each["type"]
    blocks = [each["summary"]]
    if each["doc"] != each["summary"]:
        blocks.append(each["doc"])
    facts = [("kind", _kind(each))]
    facts += [("also", ", ".join(code(alias) for alias in each["aliases"]))] if each["aliases"] else []
    facts += [("outlets", ", ".join(code(outlet) for outlet in each["outlets"]))] if each["outlets"] else []
    if each["credential_types"]:
        facts.append(("credentials", ", ".join(code(kind) for kind in each["credential_types"])))
    blocks.append(table(("", ""), facts))
    blocks += ["## Parameters", _parameters(each["parameters"]) or "None."]
    if each["output"]:
        blocks += ["## Output", each["output"]]
    if each["errors"]:
        rows = [
            (f"[`{name}`](../errors/{name}.md)", each["error_classes"][name], when)
            for name, when in each["errors"].items()
        ]
        blocks += [
            "## Errors",
            table(("code", "class", "when"), rows),
            "`retry` covers transient errors by default; permanent ones only if its `on` names the code.",
        ]
    example, drawing = _example(name)
    return {
        f"{FOLDER}/{name}.md": page(f"`{name}`", [*blocks, *example]),
        f"{FOLDER}/{name}.svg": drawing,
    }


def _parameters(schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    rows = []
    for name, field in schema.get("properties", {}).items():
        default = "required" if name in required else code(json.dumps(field.get("default")))
        rows.append((code(name), schema_type(field), default, field.get("description", "")))
    return table(("parameter", "type", "default", "meaning"), rows)


def _example(name: str) -> tuple[list[str], str]:
    """Run the example of a type; return its blocks and its drawing."""
    text = (EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")
    given, mocks = _comment(text, _INPUT) or "null", json.loads(_comment(text, _MOCKS) or "{}")
    lines = [line for line in text.splitlines() if not line.startswith((_INPUT, _MOCKS))]
    shown = "\n".join(lines)
    verdict = check_document(load_document(shown, "yaml"), full_registry(()).catalogue)
    result = Workflow.load(shown).run(json.loads(given), mocks=mocks, fake_time=True, seconds=60)
    mocked = f" and with a mock in place of {', '.join(map(code, mocks))}" if mocks else ""
    if result.error is None:
        outcome = fence("json", json.dumps(result.output, indent=2, ensure_ascii=False))
    else:
        outcome = f"`{result.error.code}`: {result.error.message}"
    return [
        "## Example",
        fence("yaml", shown),
        f"![The example as a graph]({name}.svg)",
        f"Started with `{given}`{mocked}, it ends as *{result.status}*:",
        outcome,
    ], draw_svg(draw_definition(verdict))


def _comment(text: str, prefix: str) -> str:
    return next((line.removeprefix(prefix) for line in text.splitlines() if line.startswith(prefix)), "")
