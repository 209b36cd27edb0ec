"""What notebooks show of a workflow or a result: the drawing as SVG, with the states of a run, and plain text."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rune.documents.draw.formats import draw_svg
from rune.documents.draw.model import draw_stored

if TYPE_CHECKING:
    from rune.build.flow import Workflow
    from rune.build.results import Result

_MAX_PROBLEMS = 5
_BY_WEIGHT = ("failed", "cancelled", "success", "skipped")


def picture(flow: Workflow, result: Result | None = None) -> dict[str, str]:
    """Return the forms of a workflow by MIME type; only text if it cannot be parsed."""
    text = repr(flow) if result is None else _lines(result)
    parsed = flow.parse()
    if parsed.definition is None or parsed.refused:
        problems = [f"{each.path or 'document'}: {each.message}" for each in parsed.problems[:_MAX_PROBLEMS]]
        return {"text/plain": "\n".join([text, *problems])}
    drawing = draw_stored(parsed.definition, flow.registry().catalogue)
    states = None if result is None else states_of(result)
    return {"text/plain": text, "image/svg+xml": draw_svg(drawing, states)}


def states_of(result: Result) -> dict[str, tuple[str, str]]:
    """Return for each node that ran its state and a note: for runs of items, how many ended in each state."""
    counted: dict[str, Counter[str]] = {}
    items: set[str] = set()
    for run in result:
        counted.setdefault(run.node_id, Counter())[run.status] += 1
        if run.item:
            items.add(run.node_id)
    found: dict[str, tuple[str, str]] = {}
    for node, counts in counted.items():
        state = next((each for each in _BY_WEIGHT if counts[each]), "success")
        note = (
            ", ".join(f"{counts[each]} {each}" for each in _BY_WEIGHT if counts[each])
            if node in items
            else state
        )
        found[node] = (state, note)
    return found


def _lines(result: Result) -> str:
    error = result.error
    reason = f": {error.code}: {error.message}" if error is not None else ""
    lines = [f"{result.status}{reason}"]
    lines += [f"  {node}: {note}" for node, (_, note) in states_of(result).items()]
    return "\n".join(lines)
