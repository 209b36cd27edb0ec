"""Assertions about documents, and generated documents for property tests.

assert_valid("orders.yaml")
assert_problem({"id": "a", "nodes": []}, "NO_NODES")

@given(documents())
def test_every_document_survives(document): ...
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from rune.build.flow import Workflow
from rune.core.definition.problems import Problem

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from rune.testing.engine import Document


def assert_valid(document: Document, *, nodes: Sequence[str] = ()) -> None:
    """Fail with all problems unless a document is valid. Warnings do not count."""
    errors = [each for each in _problems(document, nodes) if each.severity == "error"]
    if errors:
        raise AssertionError("the document is not valid:\n" + _listed(errors))


def assert_problem(
    document: Document, code: str, *, path: str | None = None, nodes: Sequence[str] = ()
) -> Problem:
    """Return the problem of a document with this code, at this path if one is given; fail if there is none."""
    found = _problems(document, nodes)
    for each in found:
        if each.code == code and path in (None, each.path):
            return each
    where = f" at {path}" if path is not None else ""
    raise AssertionError(f"no problem {code}{where}; found:\n{_listed(found) or '  none'}")


def _problems(document: Document, nodes: Sequence[str]) -> list[Problem]:
    flow = document if isinstance(document, Workflow) else Workflow.load(_source(document))
    return flow.check(nodes=nodes)


def _source(document: Any) -> Any:
    return Path(document) if isinstance(document, Path) else document


def _listed(problems: Sequence[Problem]) -> str:
    return "\n".join(f"  {each.code} {each.text}" for each in problems)


def documents(*, max_nodes: int = 12) -> SearchStrategy[dict[str, Any]]:
    """Return a hypothesis strategy of valid documents that run without effects and end at once.

    A document is a chain of about `max_nodes` nodes or fewer, from an `input` to an `output`, of parts in any order:
    an `edit`; a `conditional` whose two branches meet in a `merge`; a `split` over up to three items with an `edit` and
    its `aggregator`; a `fail` whose error edge leads on. Not generated are nested splits, races, joins of other
    numbers, waits, signals, children, retries, limits and common fields other than `error`. The tests of the engine
    itself use another generator, which depends on their model of an execution.
    """
    from hypothesis import strategies  # noqa: PLC0415 - hypothesis is not a dependency of Rune

    randoms = strategies.randoms(use_true_random=False)
    return strategies.builds(random_document, randoms, strategies.integers(1, max_nodes))


def random_document(random: Random, nodes: int) -> dict[str, Any]:
    """Return a valid document of about this many nodes: chains, branches that merge, splits and failing nodes."""
    made: dict[str, Any] = {"id": "generated", "nodes": [{"id": "start", "type": "input"}], "edges": []}
    last = "start"
    while len(made["nodes"]) <= nodes:
        last = random.choice((_edit, _branches, _split, _rescue))(random, made, last)
    _add(made, last, "output", {"value": "$json"})
    return made


def _add(made: dict[str, Any], after: str, type: str, parameters: Any = None, **fields: Any) -> str:
    """Add a node behind another one and return its id; a label names the outlet of the edge."""
    label = fields.pop("label", None)
    id = f"n{len(made['nodes'])}"
    node: dict[str, Any] = {"id": id, "type": type, **fields}
    if parameters is not None:
        node["parameters"] = parameters
    made["nodes"].append(node)
    made["edges"].append({"src": after, "dst": id, **({"label": label} if label else {})})
    return id


def _edit(random: Random, made: dict[str, Any], last: str, label: str | None = None) -> str:
    assignments = [{"name": f"v{at}", "value": _value(random)} for at in range(random.randint(1, 3))]
    parameters = {"mode": "keep_only", "assignments": assignments}
    return _add(made, last, "edit", parameters, label=label)


def _value(random: Random) -> Any:
    return random.choice((random.randint(-9, 9), "text", True, None, [1, 2], {"a": 1}, "{{ 1 + 2 }}"))


def _branches(random: Random, made: dict[str, Any], last: str) -> str:
    condition = _add(made, last, "conditional", {"expression": random.choice(("true", "1 > 2", "2 > 1"))})
    ends = [_edit(random, made, condition, label) for label in ("true", "false")]
    merged = _add(made, ends[0], "merge", {})
    made["edges"].append({"src": ends[1], "dst": merged})
    return merged


def _split(random: Random, made: dict[str, Any], last: str) -> str:
    split = _add(made, last, "split", {"input_array": list(range(random.randint(0, 3)))})
    body = _edit(random, made, split)
    return _add(made, body, "aggregator")


def _rescue(random: Random, made: dict[str, Any], last: str) -> str:
    """A node that fails, behind which an error edge goes on."""
    edge = f"e{len(made['edges']) + 1}"
    parameters = {"code": "BROKEN", "message": "generated"}
    failing = _add(made, last, "fail", parameters, error={"type": "branch", "error_edge": edge})
    rescue = _edit(random, made, failing)
    made["edges"][-1]["id"] = edge
    return rescue
