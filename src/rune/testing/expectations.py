"""Assertions about documents, generated documents for property tests, and the comparison of an execution with an
expected result or with another run of the same workflow.

assert_valid("orders.yaml")
assert_problem({"id": "a", "nodes": []}, "NO_NODES")

@given(documents())
def test_every_document_survives(document): ...

Values are compared as JSON: `1` equals `1.0`, `true` is not a number. An expected value may contain matchers: `<any>`,
`<string>`, `<number>`, `{<subset>: {…}}`, `{<one_of>: […]}`, `{<contains>: [text, …]}`. Two runs are compared in their
normal form: what is the same in every run with the same data.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType

from rune.build.flow import Workflow
from rune.build.results import item_text
from rune.core.definition.problems import Problem
from rune.testing.mocks import Mocks

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


NOT_RUN = frozenset({"skipped", "cancelled"})
OPEN_STATUSES = frozenset({"running", "paused"})

Choice = str | list[str]

FIELDS = ("status", "output", "error", "failed_items", "nodes")
"""The fields of a normal form."""


class ExpectedNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The expected run of a node; `item` is its place in splits (`users:5`), `index` the positions alone."""

    node_id: str
    item: str | None = None
    index: list[int] = []
    status: Choice | UnsetType = UNSET
    output: Any = UNSET
    attempts: Any = UNSET
    error_code: Choice | UnsetType = UNSET
    error_contains: Choice = []

    @property
    def place(self) -> str:
        if self.item is not None:
            return f"`{self.node_id}` of item {self.item}"
        return f"`{self.node_id}` of item {self.index}" if self.index else f"`{self.node_id}`"


class ExpectedCalls(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The expected calls of a mocked node. `parameters` are those of at least one call."""

    node_id: str
    count: int | None = None
    keys: int | None = None
    parameters: Any = UNSET


class ExpectedProblem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A problem that a refused document or payload must have. The path may be longer than `path`."""

    path: str = ""
    code: str | None = None
    contains: list[str] = []


class Expectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The expected result. Only the fields that are given are compared."""

    now: bool = False
    status: Choice | UnsetType = UNSET
    output: Any = UNSET
    error: Any = UNSET
    error_contains: list[str] = []
    failed_items: int | UnsetType = UNSET
    context: dict[str, Any] = {}
    context_absent: list[str] = []
    nodes: list[ExpectedNode] = []
    runs: dict[str, int] = {}
    absent_nodes: list[str] = []
    calls: list[ExpectedCalls] = []
    problems: list[ExpectedProblem] = []

    @property
    def waits_for_end(self) -> bool:
        """Whether the execution must end before it is compared."""
        return not (self.now or (isinstance(self.status, str) and self.status in OPEN_STATUSES))

    @property
    def named_nodes(self) -> set[str]:
        """The nodes that the expectation names. Calls may be those of a child."""
        return {each.node_id for each in self.nodes} | self.runs.keys() | set(self.absent_nodes)

    def deviations(self, document: Mapping[str, Any], mocks: Mocks) -> list[str]:
        """Return how an execution deviates, one line for each."""
        found = [
            *self._fields(document),
            *self._context(document["context"]),
            *self._nodes(document["nodes"]),
            *self._calls(mocks),
        ]
        error = document["error"]
        if found and error and self.status is UNSET and self.error is UNSET:
            found.append(f"the execution is {document['status']}: {error['code']}: {error['message']}")
        return found

    def missing_problems(self, problems: Sequence[Any]) -> list[str]:
        """Return one line for each expected problem that was not found."""
        found = "; ".join(f"{each.path or 'document'}: {each.message} [{each.code}]" for each in problems)
        return [
            f"no problem is {_described(wanted)}; found: {found}"
            for wanted in self.problems
            if not any(_fits(wanted, each) for each in problems)
        ]

    def _fields(self, document: Mapping[str, Any]) -> Iterator[str]:
        if self.status is not UNSET and document["status"] not in _choices(self.status):
            error = document["error"] or {}
            reason = f" ({error.get('code')}: {error.get('message')})" if error else ""
            yield f"status is {document['status']}{reason}, expected {_shown(self.status)}"
        for name in ("output", "error", "failed_items"):
            expected = getattr(self, name)
            if expected is not UNSET and not matches(expected, document[name]):
                yield f"{name} is {_shown(document[name])}, expected {_shown(expected)}"
        text = json.dumps(document["error"], ensure_ascii=False).lower()
        for part in self.error_contains:
            if part.lower() not in text:
                yield f"the error does not contain {part!r}: {_shown(document['error'])}"

    def _context(self, context: Mapping[str, Any]) -> Iterator[str]:
        for key, value in self.context.items():
            if key not in context:
                yield f"the context has no {key}"
            elif not matches(value, context[key]):
                yield f"{key} is {_shown(context[key])}, expected {_shown(value)}"
        for key in self.context_absent:
            if key in context:
                yield f"the context has {key}: {_shown(context[key])}"

    def _nodes(self, runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        for wanted in self.nodes:
            found = [each for each in runs if _is_at(each, wanted)]
            yield from _node(wanted, found[0]) if found else [f"{wanted.place} has no run"]
        succeeded = Counter(each["node_id"] for each in runs if each["status"] == "success")
        for node, count in self.runs.items():
            if succeeded[node] != count:
                yield f"`{node}` succeeded {succeeded[node]} times, expected {count}"
        for node in self.absent_nodes:
            statuses = sorted({each["status"] for each in runs if each["node_id"] == node} - NOT_RUN)
            if statuses:
                yield f"`{node}` must not run, but is {', '.join(statuses)}"

    def _calls(self, mocks: Mocks) -> Iterator[str]:
        for wanted in self.calls:
            mock = mocks.node(wanted.node_id)
            if wanted.count is not None and len(mock.calls) != wanted.count:
                yield f"`{wanted.node_id}` was called {len(mock.calls)} times, expected {wanted.count}"
            if wanted.keys is not None and mock.distinct_keys != wanted.keys:
                yield f"`{wanted.node_id}` was called under {mock.distinct_keys} keys, expected {wanted.keys}"
            given = [each.parameters for each in mock.calls]
            if wanted.parameters is not UNSET and not any(matches(wanted.parameters, each) for each in given):
                yield (
                    f"no call of `{wanted.node_id}` had the parameters {_shown(wanted.parameters)}; "
                    f"found: {_shown(given)}"
                )


def _is_at(run: Mapping[str, Any], wanted: ExpectedNode) -> bool:
    if run["node_id"] != wanted.node_id:
        return False
    if wanted.item is not None:
        return item_text(run["lineage"]) == wanted.item
    return [frame["item_index"] for frame in run["lineage"]] == wanted.index


def _node(wanted: ExpectedNode, run: Mapping[str, Any]) -> Iterator[str]:
    error = run["error"] or {}
    if wanted.status is not UNSET and run["status"] not in _choices(wanted.status):
        reason = f" ({error.get('code')}: {error.get('message')})" if error else ""
        yield f"{wanted.place} is {run['status']}{reason}, expected {_shown(wanted.status)}"
    for name in ("output", "attempts"):
        expected = getattr(wanted, name)
        if expected is not UNSET and not matches(expected, run[name]):
            yield f"{wanted.place} has {name} {_shown(run[name])}, expected {_shown(expected)}"
    if wanted.error_code is not UNSET and error.get("code") not in _choices(wanted.error_code):
        yield f"{wanted.place} failed with {error.get('code')}, expected {_shown(wanted.error_code)}"
    for part in _choices(wanted.error_contains):
        if part.lower() not in str(error.get("message", "")).lower():
            yield f"the error of {wanted.place} does not contain {part!r}: {error.get('message')}"


def _fits(wanted: ExpectedProblem, problem: Any) -> bool:
    text = f"{problem.path} {problem.code} {problem.message} {problem.hint}".lower()
    return (
        problem.path.startswith(wanted.path)
        and wanted.code in (None, problem.code)
        and all(part.lower() in text for part in wanted.contains)
    )


def _described(wanted: ExpectedProblem) -> str:
    return _shown({name: value for name, value in msgspec.to_builtins(wanted).items() if value})


def _choices(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 400 else f"{text[:400]}…"


def matches(expected: Any, actual: Any) -> bool:
    """Return whether a value equals the expected JSON, which may contain matchers."""
    if isinstance(expected, dict):
        if len(expected) == 1:
            ((key, inner),) = expected.items()
            if key in _MATCHERS:
                return _MATCHERS[key](inner, actual)
        same_keys = isinstance(actual, dict) and expected.keys() == actual.keys()
        return same_keys and all(matches(expected[key], actual[key]) for key in expected)
    if isinstance(expected, list):
        same_length = isinstance(actual, list) and len(expected) == len(actual)
        return same_length and all(map(matches, expected, actual))
    if isinstance(expected, str) and expected in _KINDS:
        return _KINDS[expected](actual)
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    return bool(expected == actual)


def _subset(inner: Any, actual: Any) -> bool:
    return isinstance(actual, dict) and all(
        key in actual and matches(value, actual[key]) for key, value in inner.items()
    )


def _one_of(inner: Any, actual: Any) -> bool:
    return any(matches(choice, actual) for choice in inner)


def _contains(inner: Any, actual: Any) -> bool:
    text = actual if isinstance(actual, str) else json.dumps(actual, ensure_ascii=False)
    return all(part in text for part in inner)


_MATCHERS: dict[str, Callable[[Any, Any], bool]] = {
    "<subset>": _subset,
    "<one_of>": _one_of,
    "<contains>": _contains,
}
_KINDS: dict[str, Callable[[Any], bool]] = {
    "<any>": lambda actual: True,
    "<string>": lambda actual: isinstance(actual, str) and actual != "",
    "<number>": lambda actual: isinstance(actual, int | float) and not isinstance(actual, bool),
}


def normal_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return an execution without ids, times and durations; node runs by node and item, in order."""
    runs = sorted(document["nodes"], key=lambda run: (_positions(run["lineage"]), run["node_id"]))
    return {
        "status": document["status"],
        "output": document["output"],
        "error": _error(document["error"]),
        "failed_items": document["failed_items"],
        "nodes": {_name(run): _run(run) for run in runs},
    }


def _name(run: Mapping[str, Any]) -> str:
    item = item_text(run["lineage"])
    return f"{run['node_id']}@{item}" if item else str(run["node_id"])


def _positions(lineage: list[Mapping[str, Any]]) -> tuple[tuple[str, int], ...]:
    return tuple((each["split_node_id"], each["item_index"]) for each in lineage)


def _run(run: Mapping[str, Any]) -> dict[str, Any]:
    found = {"status": run["status"], "attempts": run["attempts"], "output": run["output"]}
    return {**found, "error": _error(run["error"])} if run["error"] else found


def _error(error: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if error is None else {"code": error["code"], "message": error["message"]}


def differences(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Return how two normal forms differ: a line per field, and per node and item."""
    lines = [
        f"{name}: {found.get(name)!r} instead of {expected.get(name)!r}"
        for name in FIELDS
        if name != "nodes" and expected.get(name) != found.get(name)
    ]
    before: Mapping[str, Any] = expected.get("nodes", {})
    after: Mapping[str, Any] = found.get("nodes", {})
    for node in (*before, *(each for each in after if each not in before)):
        if node not in after:
            lines.append(f"{node}: did not run, instead of {before[node]!r}")
        elif before.get(node) != after[node]:
            lines.append(f"{node}: {after[node]!r} instead of {before.get(node)!r}")
    return lines
