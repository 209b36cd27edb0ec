"""Which nodes, outlets and error edges of workflows the tests took: `pytest --rune-cov`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rune.bootstrap import open_reader
from rune.core.execution.fact import Fact, NodeResult
from rune.core.node_type import Catalogue
from rune.core.plan.model import NodePlan, Plan
from rune.settings import Settings

_PAGE = 200

Taken = dict[str, dict[str, bool]]
"""By workflow and element, whether a test took it. An element is `node`, `node["outlet"]` or `node.on_error`."""


class Coverage:
    """Collects what executions took. Versions of a workflow are one: what one of them took is taken."""

    def __init__(self, taken: Taken | None = None) -> None:
        self.taken: Taken = taken or {}

    def add(self, plan: Plan, facts: Iterable[Fact]) -> None:
        """Add an execution."""
        found = self.taken.setdefault(plan.definition.id, {})
        for each in plan.nodes:
            for element in _elements(each):
                found.setdefault(element, False)
        for element in _taken(plan, facts):
            found[element] = True

    def merge(self, other: Mapping[str, Mapping[str, bool]]) -> None:
        """Add what another process has collected."""
        for workflow, elements in other.items():
            found = self.taken.setdefault(workflow, {})
            for element, taken in elements.items():
                found[element] = taken or found.get(element, False)

    async def read(self, settings: Settings, catalogue: Catalogue) -> None:
        """Add all executions of an embedded engine, children included."""
        async with open_reader(settings, catalogue) as reader:
            after: str | None = None
            while page := await reader.executions(after=after, limit=_PAGE):
                for each in page:
                    stored = await reader.facts(each.id)
                    self.add(await reader.plan(each.id), [fact.fact for fact in stored if not fact.late])
                after = page[-1].id

    def lines(self) -> list[str]:
        """Return the report: a line per workflow, with what no test took."""
        found: list[str] = []
        for workflow, elements in sorted(self.taken.items()):
            missing = [element for element, taken in elements.items() if not taken]
            shown = f"; not taken: {', '.join(missing)}" if missing else ""
            found.append(f"{workflow}: {len(elements) - len(missing)} of {len(elements)}{shown}")
        every = [taken for elements in self.taken.values() for taken in elements.values()]
        if every:
            found.append(f"total: {sum(every)} of {len(every)}, {100 * sum(every) // len(every)} %")
        return found


def _elements(node: NodePlan) -> Iterator[str]:
    yield node.id
    for outlet in node.by_outlet:
        if outlet is not None:
            yield _outlet(node, outlet)
    if node.rescue[0]:
        yield f"{node.id}.on_error"


def _outlet(node: NodePlan, outlet: str) -> str:
    return f'{node.id}["{outlet}"]'


def _taken(plan: Plan, facts: Iterable[Fact]) -> Iterator[str]:
    """Yield what an execution took. Triggers leave no fact: each execution passes them."""
    for trigger in plan.triggers:
        yield plan.ids[trigger]
    for fact in facts:
        if not isinstance(fact, NodeResult) or fact.status not in ("ok", "failed"):
            continue
        node = plan.nodes[fact.node]
        yield node.id
        failed = fact.status == "failed"
        if failed and node.policy == "branch" and node.rescue[0]:
            yield f"{node.id}.on_error"
        outlet = node.ignored if failed and node.policy == "ignore" else None if failed else fact.outlet
        if outlet is not None:
            yield _outlet(node, outlet)
