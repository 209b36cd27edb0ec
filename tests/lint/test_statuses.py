"""Every place that names the statuses of executions names the same ones, and `failed` selects halted ones in each."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from rune.cli.arguments import Status as CommandStatus
from rune.cli.commands.maintenance import Ended as PruneStatus
from rune.cli.output import EXIT
from rune.cli.output import STATUSES as RUN_COLUMNS
from rune.client import models
from rune.core.definition.model import HookHandler, HookStatus
from rune.core.execution.state import ExecutionStatus
from rune.ports.queries import FAILED, STATUSES, ExecutionFilter, outcome_of
from rune.ports.retention import ENDED, Rule
from rune.runtime.queries.scope_states import STATES
from rune.server.routes.executions.executions import Status as ApiStatus
from rune.server.routes.executions.node_runs import RunStatus
from rune.server.routes.handlers import Status as HandlerStatus
from rune.telemetry.counters import Counters, StoreStatsSnapshot
from rune.telemetry.prometheus import PrometheusMetrics
from rune.testing.expectations import OPEN_STATUSES
from tests.lint.tree import ROOT

RUN_STATUSES = ("success", "failed", "skipped", "cancelled", "not_reached")


def words(path: str, pattern: str) -> tuple[str, ...]:
    """The words of the only place in a file that a pattern finds."""
    (found,) = re.findall(pattern, (ROOT / path).read_text(encoding="utf-8"))
    return tuple(each.lower() for each in re.findall(r"[A-Za-z_]+", found))


def metric_labels() -> tuple[str, ...]:
    text = PrometheusMetrics(Counters(), "1", ()).text(StoreStatsSnapshot())
    return tuple(re.findall(r'rune_executions_ended_total\{[^}]*status="(\w+)"', text.decode()))


OF_EXECUTIONS = {
    "rune list --status": tuple(CommandStatus),
    "GET /executions?status": get_args(ApiStatus),
    "core": tuple(each for each in get_args(ExecutionStatus) if each != "accepted"),
    "open and ended": ("running", "paused", *ENDED),
    "tests of workflows": (*sorted(OPEN_STATUSES, reverse=True), *ENDED),
    "docs of rune list": words("docs/cli.md", r"`rune list \[--status ([a-z|]+)\]"),
    "chips of the web interface": (
        *words("ui/src/screens/executions/filter.ts", r"const STATUSES = \[(.*)\]"),
        *words("ui/src/screens/executions/filter.ts", r'const HALTED = "(.*)";'),
    ),
}
OF_ENDS = {
    "rune prune --status": tuple(PruneStatus),
    "exit codes": tuple(EXIT),
    "client": tuple(models.ENDED),
    "metrics": metric_labels(),
    "facts": words("src/rune/core/execution/fact.py", r"class ExecutionEnded[\s\S]*?status: Literal\[(.*)\]"),
    "decisions": words(
        "src/rune/core/execution/decision.py", r"class FinishExecution[\s\S]*?status: Literal\[(.*)\]"
    ),
    "completions": words(
        "src/rune/codec/messages.py", r"class CompletionMessage[\s\S]*?status: Literal\[(.*)\]"
    ),
    "web interface": words("ui/src/live/store.ts", r"ENDED = new Set\(\[(.*)\]\)"),
    "docs of rune prune": words("docs/cli.md", r"`rune prune \[--workflow ID\] \[--status ([a-z|]+)\]"),
    "docs of retention": words(
        "docs/retention.md", r"executions with this final status: (.*); `failed` selects"
    ),
    "docs of metrics": words(
        "docs/operate.md", r"ends recorded by this process: (.*)\. A node whose failure"
    ),
}
OF_HANDLERS = {
    "documents": get_args(HookStatus),
    "API": get_args(HandlerStatus),
    "schema": words("src/rune/documents/json_schema.py", r'"items": \{"enum": \[("failed", .*)\]\}'),
}
OF_RUNS = {
    "GET nodes?status": get_args(RunStatus),
    "columns of rune show": RUN_COLUMNS,
    "states": tuple(each for each in STATES if each in RUN_STATUSES),
}


@pytest.mark.parametrize("place", OF_EXECUTIONS)
def test_statuses_of_executions_are_the_same(place: str) -> None:
    assert sorted(OF_EXECUTIONS[place]) == sorted(STATUSES)


@pytest.mark.parametrize("place", OF_ENDS)
def test_final_statuses_are_the_same(place: str) -> None:
    assert sorted(OF_ENDS[place]) == sorted(ENDED)


@pytest.mark.parametrize("place", OF_HANDLERS)
def test_statuses_of_handlers_are_the_same(place: str) -> None:
    unsuccessful = [each for each in ENDED if each != "completed"]
    assert sorted(OF_HANDLERS[place]) == sorted([*unsuccessful, "failed_items"])


@pytest.mark.parametrize("place", OF_RUNS)
def test_statuses_of_runs_are_the_same(place: str) -> None:
    assert sorted(OF_RUNS[place]) == sorted(RUN_STATUSES)


def test_failed_selects_halted_everywhere() -> None:
    selects = {
        "lists": ExecutionFilter(statuses=("failed",)).statuses,
        "retention": Rule(status=("failed",), keep=0).statuses,
        "handlers": [each for each in ENDED if HookHandler(workflow="w", statuses=("failed",)).handles(each)],
        "metrics": [each for each in ENDED if outcome_of(each) == "failed"],
        "web interface": words("ui/src/screens/executions/filter.ts", r"const FAILURES = \[(.*)\]"),
    }
    assert {place: sorted(each) for place, each in selects.items()} == dict.fromkeys(selects, sorted(FAILED))


def test_halted_selects_only_halted() -> None:
    assert ExecutionFilter(statuses=("halted",)).statuses == ("halted",)
    assert Rule(status=("halted",), keep=0).statuses == ("halted",)
    alone = HookHandler(workflow="w", statuses=("halted",))
    assert [each for each in ENDED if alone.handles(each)] == ["halted"]
