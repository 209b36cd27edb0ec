"""The table of meaning: what the documentation promises of each node type, function, setting, policy and timed option.

The rows are generated from the catalogue: a new one without a promise and a test fails
`test_every_row_is_in_the_table`.
All documents run in one engine in real time, each in two executions side by side.
"""

from __future__ import annotations

import ast
import asyncio
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rune.build import Workflow
from rune.nodes.custom import NodeContext, kind_of, node
from rune.nodes.registry import Registry, standard_registry
from rune.testing.harness import harness
from tests.acceptance.meaning.catalogue import required_rows
from tests.acceptance.meaning.elsewhere import ELSEWHERE
from tests.acceptance.meaning.functions import FUNCTIONS, PAYLOAD
from tests.support.paths import ROOT
from tests.support.workflows import Fields, edit, of_type, workflow

SLACK_MS = 2_000
"""How much later than due a node may run on a busy machine."""

Check = Callable[[Fields], None]


class Row(msgspec.Struct):
    """A promise, the document that shows it, and the check of one execution of it. `differs` names nodes whose outputs
    have to be different in two executions; those of all other nodes are equal unless `timed`."""

    promise: str
    document: Fields
    check: Check
    payload: Any = {}
    differs: tuple[str, ...] = ()
    timed: bool = False


calls: list[tuple[str, str, int, str, int, int]] = []
"""Of `meaning.call`: execution, node, attempt, key, begin and end (real time in ms)."""


def _ms() -> int:
    return time.time_ns() // 1_000_000


@node("meaning.call")
async def call(ctx: NodeContext, ms: int = 0, fails: int = 0, code: str = "SHAKY") -> Fields:
    """Take `ms`, and fail in the first attempts."""
    begin = _ms()
    passed = asyncio.Event()
    asyncio.get_running_loop().call_later(ms / 1000, passed.set)
    await passed.wait()
    execution = ctx.idempotency_key.split(":")[0]
    calls.append((execution, ctx.node, ctx.attempt, ctx.idempotency_key, begin, _ms()))
    if ctx.attempt <= fails:
        from rune.errors import NodeFailure

        raise NodeFailure("failed on purpose", code=code)
    return {"key": ctx.idempotency_key, "attempt": ctx.attempt}


def registry() -> Registry:
    kind = kind_of(call)
    assert kind is not None
    return standard_registry().extended([kind])


def entry(document: Fields, name: str) -> Fields:
    entries = [each for each in document["nodes"] if each["node_id"] == name]
    assert len(entries) == 1, f"{name}: {document}"
    found: Fields = entries[0]
    return found


def output(document: Fields, name: str) -> Any:
    found = entry(document, name)
    assert found["status"] == "success", found
    return found["output"]


def began(document: Fields, name: str) -> float:
    return datetime.fromisoformat(entry(document, name)["started_at"]).timestamp() * 1000


def ended(document: Fields, name: str) -> float:
    return began(document, name) + float(entry(document, name)["duration_ms"])


def total_ms(document: Fields) -> float:
    return float(document["total_duration_ms"])


def gives(expected: Any, name: str = "n") -> Check:
    def check(document: Fields) -> None:
        assert document["status"] == "completed", document
        assert output(document, name) == expected

    return check


def fails_with(code: str, status: tuple[str, ...] = ("failed", "halted")) -> Check:
    def check(document: Fields) -> None:
        assert document["status"] in status, document
        assert document["error"]["code"] == code

    return check


def within(low: float, ms: float) -> None:
    assert low - 3 <= ms <= low + SLACK_MS, f"{ms} ms instead of {low} ms"


def single(type: str, **parameters: Any) -> Fields:
    return workflow("start>n", n=of_type(type, **parameters))


def tries(document: Fields, name: str = "n") -> list[tuple[int, int, int]]:
    """Return attempt, begin and end of each call of an execution."""
    return [
        (attempt, begin, end)
        for run, at, attempt, _, begin, end in calls
        if (run, at) == (document["execution_id"], name)
    ]


def gaps(document: Fields, name: str = "n") -> list[int]:
    """Return the real ms between the end of each attempt and the begin of the next one."""
    found = tries(document, name)
    return [later[1] - earlier[2] for earlier, later in pairwise(found)]


def retried(fails: int, **retry: Any) -> Fields:
    policy = {"max_attempts": 4, "initial_delay": 0.1, "jitter": False, **retry}
    return workflow("start>n", n={**of_type("meaning.call", fails=fails), "retry": policy})


def delays(*expected: float) -> Check:
    def check(document: Fields) -> None:
        found = gaps(document)
        assert len(found) == len(expected), found
        for each, low in zip(found, expected, strict=True):
            within(low, each)

    return check


def attempts(count: int, status: str = "completed") -> Check:
    def check(document: Fields) -> None:
        assert document["status"] == status, document
        assert len(tries(document)) == count

    return check


def check_jitter(document: Fields) -> None:
    (gap,) = gaps(document)
    assert 400 / 2 - 3 <= gap <= 400 + SLACK_MS


def check_wait(document: Fields) -> None:
    within(300, began(document, "behind") - ended(document, "before"))
    assert output(document, "n")["resume_at"] >= began(document, "n") + 300 - 3


def check_datetime(document: Fields) -> None:
    shown = datetime.fromisoformat(output(document, "n")["iso"]).timestamp() * 1000
    assert abs(shown - began(document, "n")) <= 3
    assert shown >= ended(document, "before") - 3
    assert output(document, "later")["unix"] - output(document, "n")["unix"] == pytest.approx(86_400, abs=5)


def check_now(document: Fields) -> None:
    shown = output(document, "n")
    assert shown["a"] == shown["b"], "all expressions of one run of a node have the same now"
    assert abs(datetime.fromisoformat(shown["a"]).timestamp() * 1000 - began(document, "n")) <= 3
    assert shown["a"] > output(document, "first")["a"]


def check_uuid(document: Fields) -> None:
    shown = output(document, "n")
    made = [*shown["many"], shown["a"], shown["b"], output(document, "other")["a"]]
    assert len(set(made)) == 5
    assert all(len(each) == 36 for each in made)


def check_max_parallel(document: Fields) -> None:
    spans = sorted(each[4:6] for each in calls if each[0] == document["execution_id"])
    assert len(spans) == 3
    assert all(later[0] >= earlier[1] for earlier, later in pairwise(spans)), spans


def check_key(document: Fields) -> None:
    keys = {each[3] for each in calls if each[0] == document["execution_id"] and each[1] == "n"}
    assert len(keys) == 1, "every attempt has the same key"
    assert document["execution_id"] in keys.pop()
    assert output(document, "none")["key"] == ""


def timeouts(code: str, ms: float, node_name: str | None = None) -> Check:
    def check(document: Fields) -> None:
        fails_with(code)(document)
        within(
            ms, total_ms(document) if node_name is None else float(entry(document, node_name)["duration_ms"])
        )

    return check


def races(**parameters: Any) -> Fields:
    return workflow(
        "start>slow start>fast slow>n fast>n n>seen",
        slow=of_type("meaning.call", ms=400),
        fast=edit(by="fast"),
        n=of_type("merge", **parameters),
        seen=edit(slow="{{ exists($slow) }}", fast="{{ exists($fast) }}"),
    )


def check_any(document: Fields) -> None:
    assert output(document, "n") == {"by": "fast"}
    assert output(document, "seen") == {"slow": False, "fast": True}, "which branch won can be read"
    assert began(document, "seen") - began(document, "slow") < 400


def check_all(document: Fields) -> None:
    assert [each.get("by") for each in output(document, "n")] == [None, "fast"]
    assert began(document, "n") >= ended(document, "slow") - 3


def joined(mode: str) -> Fields:
    return workflow("start>a start>b a>n b>n", a=edit(x=1, y=1), b=edit(y=2), n=of_type("merge", mode=mode))


def failing(error: Any = None, edges: str = "start>bad bad>n") -> Fields:
    bad = of_type("fail", message="no luck", code="NO_LUCK")
    return workflow(
        edges, bad=bad if error is None else {**bad, "error": error}, n=edit(code="{{ $error.code ?? null }}")
    )


def check_halt(document: Fields) -> None:
    fails_with("NO_LUCK")(document)
    assert not [each for each in document["nodes"] if each["node_id"] == "n" and each["status"] == "success"]


def check_preserved(document: Fields) -> None:
    assert document["status"] == "completed"
    written = Workflow.from_text(msgspec.json.encode(ANNOTATED).decode(), "json").to_dict()
    (found,) = [each for each in written["nodes"] if each["id"] == "n"]
    for field in ("name", "output", "position", "metadata", "notes"):
        assert found[field] == ANNOTATED["nodes"][1][field], field


ANNOTATED = workflow(
    "start>n",
    n={
        **edit(x=1),
        "name": "The node",
        "output": {"kept": True},
        "position": {"x": 1, "y": 2},
        "metadata": {"team": "a"},
        "notes": "a note",
    },
)
LIST = [{"n": 3}, {"n": 1}, {"n": 2}]
PINNED = {**of_type("fail", message="not called"), "pin": {"output": {"given": [1]}}}
ROUTED = {**of_type("conditional", expression="false"), "pin": {"outlet": "true"}}
TWICE = workflow(
    "start>each each>n n>all",
    each=of_type("split", input_array="{{ [1, 2, 3] }}"),
    n=edit(v="{{ $item * 2 }}"),
    all=of_type("aggregator"),
)
BRANCHES = workflow(
    "start>n n>yes:true n>no:false",
    n=of_type("conditional", expression="$trigger.go"),
    yes=edit(x="yes"),
    no=edit(x="no"),
)
NAMED = workflow("start>n", n={**edit(x=1), "name": "The node"})


def takes(name: str, other: str) -> Check:
    def check(document: Fields) -> None:
        assert output(document, name) == {"x": name}
        assert not [
            each for each in document["nodes"] if each["node_id"] == other and each["status"] == "success"
        ]

    return check


def aliased(document: Fields, **types: str) -> Fields:
    nodes = [{**each, "type": types.get(each["type"], each["type"])} for each in document["nodes"]]
    return {**document, "nodes": nodes}


SLOW_CALL = of_type("meaning.call", ms=5_000)
ASK = of_type("wait", resume="signal")
ROWS: dict[str, Row] = {
    "type:input": Row(
        "outputs the start payload",
        workflow("start>n", n=edit(x="{{ $start.a }}")),
        gives({"x": 7}),
        {"a": 7},
    ),
    "type:manual": Row(
        "outputs the start payload",
        aliased(workflow("start>n", n=edit(x="{{ $start.a }}")), input="manual"),
        gives({"x": 7}),
        {"a": 7},
    ),
    "type:output": Row(
        "sets the output of the execution",
        workflow("start>n", n=of_type("output", value={"a": "{{ 1 + 1 }}"})),
        lambda each: gives({"a": 2})(each) if each["output"] == {"a": 2} else pytest.fail(str(each)),
    ),
    "type:conditional": Row("one outlet, by the expression", BRANCHES, takes("no", "yes"), {"go": False}),
    "type:if": Row("is `conditional`", aliased(BRANCHES, conditional="if"), takes("yes", "no"), {"go": True}),
    "type:switch": Row(
        "the first matching rule, otherwise the fallback",
        workflow(
            "start>n n>a:case_0 n>b:case_1 n>c:fallback",
            n=of_type(
                "switch",
                rules=[
                    {"value": "{{ $start.v }}", "operator": "==", "compare": 1},
                    {"value": "{{ $start.v }}", "operator": "==", "compare": 2},
                ],
            ),
            a=edit(x="a"),
            b=edit(x="b"),
            c=edit(x="c"),
        ),
        takes("b", "c"),
        {"v": 2},
    ),
    "type:split": Row(
        "one run of its body for each item", TWICE, gives([{"v": 2}, {"v": 4}, {"v": 6}], "all")
    ),
    "type:aggregator": Row(
        "the results of the items in their order", TWICE, gives([{"v": 2}, {"v": 4}, {"v": 6}], "all")
    ),
    "type:merge": Row(
        "runs once, when its branches have arrived", joined("append"), gives([{"x": 1, "y": 1}, {"y": 2}])
    ),
    "type:wait": Row(
        "waits its duration, from its own begin",
        workflow(
            "start>before before>n n>behind",
            before=of_type("meaning.call", ms=300),
            n=of_type("wait", amount=0.3),
            behind=edit(x=1),
        ),
        check_wait,
        timed=True,
    ),
    "type:workflow": Row(
        "outputs what its child outputs",
        single("workflow", workflow="child"),
        lambda each: gives({"out": {"n": 5}})(
            {**each, "nodes": [{**entry(each, "n"), "output": {"out": output(each, "n")["made"]}}]}
        ),
        {"n": 5},
    ),
    "type:edit": Row(
        "sets fields; dots nest; types convert",
        single(
            "edit", **{"from": {"a": 1}, "assignments": [{"name": "b.c", "value": "2", "type": "number"}]}
        ),
        gives({"a": 1, "b": {"c": 2}}),
    ),
    "type:set": Row(
        "is `edit`", single("set", mode="keep_only", assignments=[{"name": "a", "value": 1}]), gives({"a": 1})
    ),
    "type:filter": Row(
        "the elements for which the expression is true",
        single("filter", input_array=LIST, expression="$item.n > 1"),
        gives({"items": [{"n": 3}, {"n": 2}], "count": 2, "original_count": 3}),
    ),
    "type:sort": Row(
        "in the order of the key",
        single("sort", input_array=LIST, expression="$item.n", direction="desc"),
        gives({"items": [{"n": 3}, {"n": 2}, {"n": 1}], "count": 3, "original_count": 3}),
    ),
    "type:limit": Row(
        "the first elements",
        single("limit", input_array=LIST, count=2),
        gives({"items": [{"n": 3}, {"n": 1}], "count": 2, "original_count": 3}),
    ),
    "type:datetime": Row(
        "now is its own begin; adds units",
        workflow(
            "start>before before>n n>later",
            before=of_type("meaning.call", ms=200),
            n=of_type("datetime"),
            later=of_type("datetime", operation="add", amount=1, unit="days"),
        ),
        check_datetime,
        timed=True,
    ),
    "type:log": Row(
        "outputs the message; the payload passes on",
        workflow(
            "start>a a>l l>n",
            a=edit(x=1),
            l=of_type("log", message="hi {{ $a.x }}"),
            n=edit(m="{{ $l }}", p="{{ $json }}"),
        ),
        lambda each: gives({"m": output(each, "l"), "p": {"x": 1}})(each),
    ),
    "type:noop": Row(
        "outputs the incoming payload",
        workflow("start>a a>n", a=edit(x=1), n=of_type("noop")),
        gives({"x": 1}),
    ),
    "type:fail": Row(
        "always fails, with its message and code",
        single("fail", message="no luck", code="NO_LUCK"),
        fails_with("NO_LUCK"),
    ),
    "function:now": Row(
        "the begin of the node, the same in the whole run",
        workflow(
            "start>first first>slow slow>n",
            first=edit(a="{{ now() }}"),
            slow=of_type("meaning.call", ms=50),
            n=edit(a="{{ now() }}", b="{{ now() }}"),
        ),
        check_now,
        timed=True,
    ),
    "function:uuid": Row(
        "different in every execution, node and place",
        workflow(
            "start>n n>other",
            n=edit(a="{{ uuid() }}", b="{{ uuid() }}", many="{{ [uuid() for x in range(2)] }}"),
            other=edit(a="{{ uuid() }}"),
        ),
        check_uuid,
        differs=("n", "other"),
    ),
    "node:id": Row(
        "names the node in expressions",
        workflow("start>a a>n", a=edit(x=3), n=edit(y="{{ $a.x }}")),
        gives({"y": 3}),
    ),
    "node:type": Row("selects what the node does", single("noop"), gives({"a": 1}), {"a": 1}),
    "node:parameters": Row(
        "may contain expressions",
        single("limit", input_array="{{ $start.list }}", count="{{ 1 + 1 }}"),
        gives({"items": [1, 2], "count": 2, "original_count": 3}),
        {"list": [1, 2, 3]},
    ),
    "node:timeout": Row(
        "seconds per attempt",
        workflow("start>n", n={**SLOW_CALL, "timeout": 0.3}),
        timeouts("TIMEOUT", 300, "n"),
        timed=True,
    ),
    "node:retry": Row("tries again after a failure", retried(2), attempts(3), timed=True),
    "node:join": Row(
        "`any` runs with the first branch that arrives",
        workflow(
            "start>slow start>fast slow>n fast>n",
            slow=of_type("meaning.call", ms=300),
            fast=edit(by="fast"),
            n={**edit(fast="{{ exists($fast) }}"), "join": "any"},
        ),
        lambda each: (
            gives({"fast": True})(each) if began(each, "n") < ended(each, "slow") else pytest.fail(str(each))
        ),
        timed=True,
    ),
    "node:idempotency_key": Row(
        "the same in every attempt, different between executions; false: none",
        workflow(
            "start>n n>none",
            n={**of_type("meaning.call", fails=1), "retry": {"max_attempts": 2, "initial_delay": 0.01}},
            none={**of_type("meaning.call"), "idempotency_key": False},
        ),
        check_key,
        differs=("n",),
        timed=True,
    ),
    "node:trigger": Row(
        "outputs the start payload",
        {
            "id": "t",
            "nodes": [{"id": "n", "type": "noop", "trigger": True}, {"id": "m", **edit(x="{{ $n.a }}")}],
            "edges": [{"src": "n", "dst": "m"}],
        },
        gives({"x": 4}, "m"),
        {"a": 4},
    ),
    "node:pin": Row("the node is not called", workflow("start>n", n=PINNED), gives({"given": [1]})),
    "node:error": Row("what happens after the last attempt", failing("ignore"), gives({"code": "NO_LUCK"})),
    "pin:output": Row("is the output of the node", workflow("start>n", n=PINNED), gives({"given": [1]})),
    "pin:outlet": Row(
        "selects the outlet",
        workflow("start>n n>yes:true n>no:false", n=ROUTED, yes=edit(x="yes"), no=edit(x="no")),
        takes("yes", "no"),
    ),
    "error:halt": Row("ends the execution", failing(), check_halt),
    "error:ignore": Row(
        "goes on behind the node, with `$error`", failing("ignore"), gives({"code": "NO_LUCK"})
    ),
    "error:branch": Row(
        "goes on at the error edge only", failing("branch", "start>bad bad!n"), gives({"code": "NO_LUCK"})
    ),
    "retry:max_attempts": Row(
        "attempts in total",
        retried(9, max_attempts=3, initial_delay=0.01),
        lambda each: fails_with("SHAKY")(each) if len(tries(each)) == 3 else pytest.fail(str(tries(each))),
        timed=True,
    ),
    "retry:initial_delay": Row(
        "seconds before the second attempt", retried(1, initial_delay=0.3), delays(300), timed=True
    ),
    "retry:backoff": Row(
        "the delay grows by this factor", retried(2, backoff=3), delays(100, 300), timed=True
    ),
    "retry:max_delay": Row(
        "upper bound of the delay", retried(3, backoff=100, max_delay=0.2), delays(100, 200, 200), timed=True
    ),
    "retry:jitter": Row(
        "shortens each delay by up to one half, differently in each execution",
        retried(1, initial_delay=0.4, jitter=True),
        check_jitter,
        timed=True,
    ),
    "retry:on": Row(
        "exactly these codes are retried",
        retried(2, on=["OTHER"]),
        lambda each: fails_with("SHAKY")(each) if len(tries(each)) == 1 else pytest.fail(str(tries(each))),
    ),
    "settings:timeout": Row(
        "seconds for the whole execution",
        workflow("start>n", {"timeout": 0.4}, n=ASK),
        timeouts("TIMEOUT", 400),
        timed=True,
    ),
    "settings:join_timeout": Row(
        "of a join without one of its own and without a wait before it",
        workflow(
            "start>ask start>a ask>n a>n",
            {"join_timeout": 0.4},
            ask=SLOW_CALL,
            a=edit(x=1),
            n=of_type("merge"),
        ),
        timeouts("TIMEOUT", 400),
        timed=True,
    ),
    "settings:max_parallel": Row(
        "at most this many nodes run at once",
        workflow(
            "start>a start>b start>c",
            {"max_parallel": 1},
            **dict.fromkeys("abc", of_type("meaning.call", ms=100)),
        ),
        check_max_parallel,
        timed=True,
    ),
    "wait_mode:wait_for_all": Row(
        "waits for every branch", races(wait_mode="wait_for_all"), check_all, timed=True
    ),
    "wait_mode:wait_for_any": Row(
        "the first branch; only it can be read behind the merge",
        races(wait_mode="wait_for_any"),
        check_any,
        timed=True,
    ),
    "wait_mode:at_least": Row(
        "opens at the k-th arrival",
        races(wait_mode={"at_least": 1}),
        lambda each: (
            gives([{"by": "fast"}])(each)
            if began(each, "n") < ended(each, "slow")
            else pytest.fail(str(each))
        ),
        timed=True,
    ),
    "mode:append": Row(
        "the list of payloads in edge order", joined("append"), gives([{"x": 1, "y": 1}, {"y": 2}])
    ),
    "mode:object": Row(
        "the payloads by predecessor", joined("object"), gives({"a": {"x": 1, "y": 1}, "b": {"y": 2}})
    ),
    "mode:combine": Row(
        "one object, later edges take precedence", joined("combine"), gives({"x": 1, "y": 2})
    ),
    **{
        f"node:{field}": Row("accepted and preserved", ANNOTATED, check_preserved)
        for field in ("name", "output", "position", "metadata", "notes")
    },
}
CHILD = {**workflow("start>made", made=of_type("noop")), "id": "child"}
EXPRESSIONS = [
    (name, number, source)
    for name, (_, cases) in FUNCTIONS.items()
    for number, (source, _) in enumerate(cases)
]
LIBRARY = workflow(
    "start>n", n=edit(**{f"{name}_{number}": f"{{{{ {source} }}}}" for name, number, source in EXPRESSIONS})
)


@cache
def executed() -> dict[str, list[Fields] | BaseException]:
    """Run every document in two executions side by side, all at the same time in one engine."""

    async def go(folder: Path) -> dict[str, list[Fields] | BaseException]:
        async with harness(folder, registry=registry(), slots=200) as engine:
            await engine.engine.services.workflows.deploy(msgspec.json.encode(CHILD))

            async def twice(document: Fields, payload: Any) -> list[Fields]:
                return list(await asyncio.gather(*(engine.run(document, payload) for _ in range(2))))

            documents = {key: (row.document, row.payload) for key, row in ROWS.items()}
            documents["functions"] = (LIBRARY, PAYLOAD)
            results = await asyncio.gather(
                *(twice(*each) for each in documents.values()), return_exceptions=True
            )
            return dict(zip(documents, results, strict=True))

    with tempfile.TemporaryDirectory(prefix="rune-meaning-") as folder:
        return asyncio.run(go(Path(folder)))


def both(key: str) -> list[Fields]:
    documents = executed()[key]
    if isinstance(documents, BaseException):
        raise documents
    return documents


def test_every_row_is_in_the_table() -> None:
    rows = set(ROWS) | set(ELSEWHERE) | {f"function:{name}" for name in FUNCTIONS}
    assert rows - required_rows() == set(), "the product has these no longer"
    assert required_rows() - rows == set(), "state what the documentation promises of these, and test it"


@pytest.mark.parametrize("row", sorted(ROWS))
def test_promise_of(row: str) -> None:
    promised = ROWS[row]
    first, second = both(row)
    assert first["execution_id"] != second["execution_id"]
    for each in (first, second):
        promised.check(each)
    for name in promised.differs:
        assert output(first, name) != output(second, name), f"{name} is the same in two executions"
    if not promised.timed and not promised.differs:
        assert first["output"] == second["output"]


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_promise_of_function(name: str) -> None:
    for document in both("functions"):
        results = output(document, "n")
        for number, (source, expected) in enumerate(FUNCTIONS[name][1]):
            found = results[f"{name}_{number}"]
            assert (type(found), found) == (type(expected), expected), source


@pytest.mark.parametrize("row", sorted(ELSEWHERE))
def test_row_names_a_test(row: str) -> None:
    """The promise of such a row is kept by a test that needs more than one engine."""
    file, name = ELSEWHERE[row]
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    names = {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert name in names


def test_slots_bound_the_nodes_that_run_at_once(tmp_path: Path) -> None:
    document = workflow("start>a start>b start>c", **dict.fromkeys("abc", of_type("meaning.call", ms=50)))

    async def go() -> Fields:
        async with harness(tmp_path, registry=registry(), slots=1) as engine:
            return await engine.run(document)

    check_max_parallel(asyncio.run(go()))
