"""The deepest documents, expressions and values that the limits allow, and one level more, through every command and
the routes of the editor: each ends with a result, or with an error that names the limit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rune.core.expr.budget import MAX_NESTING
from rune.core.limits import LIMITS
from tests.support.api_server import RunningServer, run
from tests.support.documents import document, node
from tests.support.in_process_cli import InProcessCli
from tests.support.whole import WHOLE

pytestmark = pytest.mark.long

BROKEN = (
    "Traceback",
    "RecursionError",
    "maximum recursion depth",
    "internal error",
    '"code":"ERROR"',
    "INTERNAL",
)
INTERNAL = 70
Wrap = Callable[[Any], Any]
WRAPS: dict[str, Wrap] = {"lists": lambda value: [value], "objects": lambda value: {"a": value}}


class Case(NamedTuple):
    """A document and the payload it is started with. `limit` is in the error where one level more is refused."""

    document: dict[str, Any]
    input: Any = None
    limit: str = ""
    runs: bool = True


def depth_of(value: Any) -> int:
    level, found = 0, [value]
    while found := [
        inner
        for each in found
        if isinstance(each, dict | list)
        for inner in (each.values() if isinstance(each, dict) else each)
    ]:
        level += 1
    return level


def nested(wrap: Wrap, depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    return value


def in_document(place: Callable[[Any], dict[str, Any]], wrap: Wrap, depth: int) -> dict[str, Any]:
    """Return a document of a depth: with a nested value at a place."""
    return place(nested(wrap, depth - depth_of(place(1))))


PLACES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "parameter": lambda value: one(
        "edit", {"mode": "keep_only", "assignments": [{"name": "k", "value": value}]}
    ),
    "output": lambda value: one("output", {"value": value}),
    "pin": lambda value: document(
        [node("in", "input"), {**node("n", "noop"), "pin": {"output": value}}], "in>n", id="deep"
    ),
    "schema": lambda value: {**one("noop", {}), "inputs": {"k": {"type": "any", "default": value}}},
}


def one(type: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return document([node("in", "input"), node("n", type, parameters)], "in>n", id="deep")


EXPRESSIONS: dict[str, Callable[[int], str]] = {
    "parentheses": lambda depth: "(" * depth + "1" + ")" * depth,
    "not": lambda depth: "not " * depth + "true",
    "minus": lambda depth: "- " * depth + "1",
    "lists": lambda depth: "[" * depth + "]" * depth,
    "objects": lambda depth: "{'a': " * depth + "1" + "}" * depth,
    "calls": lambda depth: "string(" * depth + "1" + ")" * depth,
    "index": lambda depth: "$trigger" + "[0]" * depth,
    "members": lambda depth: "$trigger" + ".a" * depth,
    "sum": lambda depth: "1 + " * depth + "1",
    "and": lambda depth: "true and " * depth + "true",
    "choice": lambda depth: "true ? 1 : " * depth + "1",
}


def splits(count: int) -> dict[str, Any]:
    nodes = [node("in", "input")]
    edges: list[str] = []
    before = "in"
    for at in range(count):
        nodes.append(node(f"s{at}", "split", {"input_array": "{{ [1] }}"}))
        edges.append(f"{before}>s{at}")
        before = f"s{at}"
    for at in reversed(range(count)):
        nodes.append(node(f"a{at}", "aggregator"))
        edges.append(f"{before}>a{at}")
        before = f"a{at}"
    return document(nodes, *edges, id="deep")


def chain(count: int) -> dict[str, Any]:
    nodes = [node(f"n{at}", "noop" if at else "input") for at in range(count)]
    return document(nodes, *(f"n{at}>n{at + 1}" for at in range(count - 1)), id="deep")


def cases() -> Iterator[tuple[str, Case]]:
    depth = LIMITS.json_depth
    for more in (0, 1):
        for name, wrap in WRAPS.items():
            for place, at in PLACES.items():
                made = in_document(at, wrap, depth + more)
                yield f"{place} of {name} {more}", Case(made, limit=str(depth))
            given = nested(wrap, depth + more)
            yield (
                f"input of {name} {more}",
                Case(one("output", {"value": "{{ $trigger }}"}), given, str(depth)),
            )
            wrapped = one("edit", {"from": {"deeper": "{{ $trigger }}"}})
            yield f"value of {name} {more}", Case(wrapped, nested(wrap, depth - 1 + more), str(depth))
        for name, text in EXPRESSIONS.items():
            made = one("output", {"value": f"{{{{ {text(MAX_NESTING + more)} }}}}"})
            yield f"expression of {name} {more}", Case(made, limit=str(MAX_NESTING), runs=WHOLE)
        yield f"splits {more}", Case(splits(LIMITS.split_depth + more), limit=str(LIMITS.split_depth))
        yield f"chain {more}", Case(chain(LIMITS.nodes + more), limit=f"{LIMITS.nodes:,}", runs=False)
    for name, text in EXPRESSIONS.items():
        made = one("output", {"value": f"{{{{ {text(2_000)} }}}}"})
        yield f"expression of many {name}", Case(made, limit="limit: ", runs=WHOLE)
    for name, wrap in WRAPS.items():
        yield f"document of many {name}", Case(in_document(PLACES["output"], wrap, 900), limit=str(depth))


CASES = dict(cases())


READ = (
    "",
    "/explain",
    "/document",
    "/graph",
    "/nodes",
    "/input",
    "/output",
    "/nodes/n/input",
    "/nodes/n/output",
    "/nodes/n/attempts",
)


def refused(output: str, case: Case) -> bool:
    return case.limit in output.replace("\n", " ")


@pytest.mark.parametrize("name", CASES)
def test_commands_end_with_a_result_or_name_the_limit(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    rune = InProcessCli(tmp_path / "home")
    source, other = tmp_path / "deep.json", tmp_path / "other.yaml"
    source.write_text(json.dumps(case.document), encoding="utf-8")
    given = ("--input", json.dumps(case.input)) if case.input is not None else ()

    def call(*arguments: str) -> str:
        """Run a command; its exceptions are raised here."""
        done = rune(*arguments)
        assert done.exit_code != INTERNAL, done.output
        for each in BROKEN:
            assert each not in done.output, (arguments, done.output[-2_000:])
        codes[arguments[0]] = done.exit_code
        return done.output

    codes: dict[str, int] = {}
    checked = call("check", str(source))
    assert codes["check"] == 0 or refused(checked, case), checked[-600:]
    for suffix in ("yaml", "json", "py"):
        call("convert", str(source), str(tmp_path / f"other.{suffix}"))
        if codes["convert"] == 0:
            call("convert", str(tmp_path / f"other.{suffix}"), str(tmp_path / f"back-{suffix}.yaml"))
            call("check", str(tmp_path / f"other.{suffix}"))
    call("graph", str(source), "--mermaid")
    call("import", str(source))
    call("deploy", str(source))
    if codes["deploy"] != 0 or not case.runs:
        return
    other.write_text(json.dumps(case.document | {"name": "other"}), encoding="utf-8")
    call("deploy", str(other))
    call("workflows", "show", "deep")
    call("workflows", "diff", "deep", "1", "2")
    ran = call("run", str(source), *given)
    assert codes["run"] in (0, 1) or refused(ran, case), ran[-600:]
    call("start", "deep", *given)
    listed = json.loads(rune.output("list", "--json"))
    for execution in [each["execution_id"] for each in listed["executions"]]:
        for command in ("show", "explain", "value", "verify", "record", "logs"):
            call(command, execution)
        call("show", execution, "--json")
        call("compare", execution, listed["executions"][0]["execution_id"])


def test_routes_of_the_editor_end_with_a_result_or_name_the_limit(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        for name, case in CASES.items():
            if not case.runs:
                continue
            body = json.dumps(case.document)
            started = json.dumps({"definition": case.document, "input": case.input})
            asked = [
                ("POST", "/workflows/validate", body),
                ("POST", "/workflows/validate?plan=true&layout=true", body),
                ("PUT", "/workflows/deep", body),
                ("POST", "/workflows/import", body),
                ("POST", "/executions?wait=20", started),
                ("POST", "/workflows/deep/executions?wait=20", json.dumps({"input": case.input})),
            ]
            ids = []
            for method, path, sent in asked:
                answer = await server.http.request(
                    method, f"/api/v1{path}", content=sent, headers={"content-type": "application/json"}
                )
                assert answer.status_code < 500, (name, method, path, answer.text[-600:])
                for each in BROKEN:
                    assert each not in answer.text, (name, method, path, answer.text[-600:])
                found = answer.json().get("execution_id") if answer.status_code == 202 else None
                ids += [found] if found else []
            for id in ids:
                for path in READ:
                    answer = await server.http.get(f"/api/v1/executions/{id}{path}")
                    assert answer.status_code < 500, (name, path, answer.text[-600:])

    run(tmp_path, work)
