"""Measures the core: µs per operation, and the ratio to a plain Python function that does the minimum.

    python bench/core.py [--json]

Every result is the best of several repetitions, to exclude other load on the machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from rune.core.definition.model import Definition, Edge, Node
from rune.core.definition.parser import parse_document
from rune.core.execution.outcome import FanOut, Output
from rune.core.execution.state import State
from rune.core.execution.step import step, step_unrun
from rune.core.execution.token import TokenPurpose
from rune.core.execution.transition import apply, start_execution
from rune.core.expr import compile_expression, compile_template
from rune.core.plan.compiler import compile_definition, names_of
from rune.core.plan.model import Plan
from rune.core.validation.validate import validate_document
from rune.nodes.registry import standard_catalogue

REPEATS = 7
NOW = 1_700_000_000_000


def best(operation: Callable[[], int], repeats: int = REPEATS) -> float:
    """Return the seconds per unit of an operation, which returns how many units it did."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        units = operation()
        times.append((time.perf_counter() - began) / units)
    return min(times)


def chain(length: int) -> Definition:
    nodes = [Node(id="start", type="input")]
    nodes += [Node(id=f"n{i}", type="noop") for i in range(length)]
    edges = [Edge(id=f"e{i}", src=nodes[i].id, dst=nodes[i + 1].id) for i in range(length)]
    return Definition(id="chain", nodes=tuple(nodes), edges=tuple(edges))


def linear_token() -> tuple[float, float, float]:
    """Measure `step` and `apply` per token of a chain, compared with a minimal loop over a queue and a dict."""
    plan = compile_definition(chain(1_000), standard_catalogue())
    value = {"k": 1}

    def rules() -> int:
        state = State()
        tokens = start_execution(plan, state, NOW).emitted
        done = 0
        while tokens:
            decision = step(plan, tokens[0], Output(value), NOW)
            tokens = apply(plan, state, decision).emitted
            done += 1
        return done

    def plain() -> int:
        edges = {i: [i + 1] for i in range(1_000)}
        edges[1_000] = []
        results: dict[int, Any] = {}
        queue = [1]
        while queue:
            node = queue.pop()
            results[node] = value
            queue.extend(edges[node])
        return len(results)

    return best(rules) * 1e6, best(plain) * 1e6, 15.0


def comparison() -> tuple[float, float, float]:
    expression = compile_expression("$a.b.c == 1", names_of(chain_with("a")))
    scope = {"$a": {"b": {"c": 1}}}

    def compiled() -> int:
        for _ in range(20_000):
            expression.evaluate(scope)
        return 20_000

    def plain() -> int:
        look = scope
        for _ in range(20_000):
            look["$a"]["b"]["c"] == 1  # noqa: B015
        return 20_000

    return best(compiled) * 1e6, best(plain) * 1e6, 1.5


def template() -> tuple[float, float, float]:
    compiled = compile_template("Hello {{ $a.b }} and $a.c", names_of(chain_with("a")))
    scope = {"$a": {"b": "x", "c": 5}}

    def resolved() -> int:
        for _ in range(20_000):
            compiled.resolve(scope)
        return 20_000

    def plain() -> int:
        for _ in range(20_000):
            f"Hello {scope['$a']['b']} and {scope['$a']['c']}"
        return 20_000

    return best(resolved) * 1e6, best(plain) * 1e6, 3.0


def chain_with(name: str) -> Definition:
    return Definition(id="one", nodes=(Node(id=name, type="noop"),))


def document(nodes: int) -> bytes:
    entries: list[dict[str, Any]] = [{"id": "n0", "type": "input"}]
    for i in range(1, nodes):
        value = f"{{{{ $n{i - 1}.k + 1 }}}}" if i > 1 else "{{ $trigger.k }}"
        assignments = [{"name": "k", "value": value}, {"name": "t", "value": f"step {i} of $trigger.name"}]
        entries.append(
            {"id": f"n{i}", "type": "edit", "parameters": {"mode": "keep_only", "assignments": assignments}}
        )
    edges = [{"src": f"n{i}", "dst": f"n{i + 1}"} for i in range(nodes - 1)]
    return json.dumps({"id": "big", "nodes": entries, "edges": edges}).encode()


def compile_ms(nodes: int) -> float:
    data = document(nodes)
    catalogue = standard_catalogue()

    def whole() -> int:
        parsed = parse_document(data)
        verdict = validate_document(parsed, catalogue)
        assert verdict.valid
        assert parsed.definition is not None
        compile_definition(
            parsed.definition, catalogue, [each for each in verdict.parameters if each is not None]
        )
        return 1

    return best(whole, 3) * 1e3


def fan_plan() -> Plan:
    nodes = (
        Node(id="start", type="input"),
        Node(id="s", type="split", parameters={"input_array": "$trigger"}),
        Node(id="x", type="noop"),
        Node(id="g", type="aggregator"),
    )
    edges = tuple(
        Edge(id=f"e{i}", src=src, dst=dst)
        for i, (src, dst) in enumerate((("start", "s"), ("s", "x"), ("x", "g")))
    )
    return compile_definition(Definition(id="fan", nodes=nodes, edges=edges), standard_catalogue())


def fan_out(items: int) -> tuple[float, float]:
    """Return the longest single step in ms and the µs per item of a fan-out."""
    plan = fan_plan()
    longest = 0.0

    def whole() -> int:
        nonlocal longest
        state = State()
        tokens = start_execution(plan, state, NOW).emitted
        worst = 0.0
        while tokens:
            token = tokens.pop()
            began = time.perf_counter()
            if token.fate is TokenPurpose.RUN:
                outcome = FanOut(items) if plan.nodes[token.node].fans_out else Output(1)
                decision = step(plan, token, outcome, NOW)
            else:
                decision = step_unrun(plan, token, NOW)
            tokens += apply(plan, state, decision).emitted
            worst = max(worst, time.perf_counter() - began)
        longest = min(longest, worst) if longest else worst
        return items

    per_item = best(whole, 3)
    return longest * 1e3, per_item * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name, (took, plain, goal) in {
        "step + apply, linear token": linear_token(),
        "compiled `$a.b.c == 1`": comparison(),
        "two-part template": template(),
    }.items():
        rows.append({"job": name, "us": took, "plain_us": plain, "ratio": took / plain, "goal_us": goal})
    small, large = compile_ms(1_000), compile_ms(2_000)
    rows.append(
        {
            "job": "parse + validate + compile, 2,000 nodes",
            "ms": large,
            "goal_ms": 250,
            "ratio_to_half": large / small,
        }
    )
    longest, per_item = fan_out(10_000)
    rows.append(
        {"job": "10,000-item fan-out, longest step", "ms": longest, "goal_ms": 5, "us_per_item": per_item}
    )
    if options.json:
        print(json.dumps(rows, indent=2))
        return 0
    for row in rows:
        job = row.pop("job")
        print(f"{job:45}", "  ".join(f"{key} {value:,.2f}" for key, value in row.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
