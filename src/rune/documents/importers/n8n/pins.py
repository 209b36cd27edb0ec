"""Pinned data of n8n exports as mocks of a test: what each pinned node gives, in the form of the new node's output.

n8n uses pinned data only in runs from its editor. Here it is the input and the mocks of a test for `rune test`; the
document keeps the original under `metadata.n8n.pinData`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rune.core.definition.strict_json import join
from rune.documents.importers.n8n.scope import Flow
from rune.documents.importers.report import is_empty

if TYPE_CHECKING:
    from rune.documents.importers.n8n.graph import N8nImporter

_PLACE = "metadata.n8n.pinData"
_TRIGGERS = ("manual", "input", "schedule", "webhook")
_ONE_START = "an execution has one start payload"
_HINT = "give it to a test as a mock of a node, in the form of its output"


def pinned_items(source: dict[str, Any], name: str) -> list[Any]:
    """Return the items that are pinned to a node, without the objects of n8n around them."""
    pins = source.get("pinData")
    items = pins.get(name) if isinstance(pins, dict) else None
    return [
        each["json"] if isinstance(each, dict) and "json" in each else each
        for each in (items if isinstance(items, list) else [])
    ]


def read_pins(importer: N8nImporter) -> dict[str, Any]:
    """Report the pinned data of an import; return the test that it gives, empty if it gives none."""
    pins = importer.source.get("pinData")
    test: dict[str, Any] = {"case": f"pinned data of {importer.title or 'the workflow'}"}
    mocks: dict[str, Any] = {}
    for name, items in (pins if isinstance(pins, dict) else {}).items():
        if name not in importer.ids or is_empty(items):
            continue
        path, place = join("pinData", name), join(_PLACE, name)
        importer.draft.metadata.setdefault("n8n", {}).setdefault("pinData", {})[name] = items
        if name not in importer.outputs:
            importer.record.carried(path, place, "of a node that never runs")
            continue
        _report_files(importer, path, items)
        values = pinned_items(importer.source, name)
        flow = importer.outputs[name][0].flow if importer.outputs[name] else Flow(False, "")
        starts = importer.draft.node(importer.ids[name])["type"] in _TRIGGERS
        if starts and len(values) == 1 and "input" not in test:
            test["input"] = values[0]
            importer.record.carried(path, place, "the input of the test that `--tests` writes")
            continue
        answer = _answer(importer, name, flow, values)
        if answer is None:
            reason = _ONE_START if starts else _reason(flow, importer.ids[name])
            importer.record.by_hand(path, reason, _HINT, place)
        else:
            mocks[importer.ids[name]] = answer
            importer.record.carried(path, place, "a mock of the test that `--tests` writes")
    if not mocks and "input" not in test:
        return {}
    return {**test, **({"mocks": mocks} if mocks else {}), "expect": {"status": "completed"}}


def _reason(flow: Flow, node: str) -> str:
    return (
        f"several items cannot be the output of `{node}`"
        if f"${node}" in flow.text
        else f"`{node}` passes on what an earlier node gives"
    )


def _answer(importer: N8nImporter, name: str, flow: Flow, values: list[Any]) -> dict[str, Any] | None:
    """Return the mock of a pinned node, or None if no output of the new node gives the pinned items."""
    if name in importer.loops:
        return None
    if flow.many:
        found = None if name in importer.regions else _output(importer, name, flow, values)
        return None if found is None else {"returns": found[0]}
    outputs = [_output(importer, name, flow, each) for each in values]
    made = [each[0] for each in outputs if each is not None]
    if len(made) < len(values):
        return None
    if name in importer.regions:
        return {"items": {str(at): {"returns": each} for at, each in enumerate(made)}}
    return {"returns": made[0]} if len(made) == 1 else None


def _output(importer: N8nImporter, name: str, flow: Flow, value: Any) -> tuple[Any] | None:
    """Return the output with which the expression of a flow has a value; None if there is none."""
    node = f"${importer.ids[name]}"
    if flow.text == node:
        return (value,)
    if flow.text == f"{node}.items":
        return ({"items": value},)
    if importer.draft.node(importer.ids[name])["type"] != "http":
        return None
    if flow.text.startswith(f"{node}_response") and isinstance(value, dict):
        status, headers = value.get("statusCode", 200), value.get("headers", {})
        return ({"status": status, "headers": headers, "body": value.get("body")},)
    return ({"status": 200, "headers": {}, "body": value},) if f"{node}.body" in flow.text else None


def _report_files(importer: N8nImporter, path: str, items: Any) -> None:
    for at, item in enumerate(items if isinstance(items, list) else []):
        if isinstance(item, dict) and not is_empty(item.get("binary")):
            importer.record.by_hand(
                f"{path}[{at}].binary",
                "files of pinned items are not part of a mock",
                "store the file as a blob and name its reference in the mock",
            )
