"""I: a master, its triggers, and who may ask it what. Some of these tests stand where their subject has its others."""

from __future__ import annotations

from tests.hazards.reds.nodes import TABLE as NODES
from tests.hazards.reds.patch import Red, red, same

_I = "test_hazards_i.py::test_h_"
_TICKS = "tests/triggers/test_schedules.py::test_h_"

TABLE: dict[str, Red] = {
    "i1": red(
        _I + "i1_what_was_accepted_and_never_opened_runs",
        ("runtime/relay.py", "            await self._launcher.open(accepted)\n", "            pass\n"),
        hangs=True,
    ),
    "i3": red(
        _I + "i3_a_stream_ends_with_what_happened",
        ("runtime/history.py", 'return f"execution.{fact.status}"', 'return "execution.completed"'),
    ),
    "i4": red(
        _I + "i4_who_never_saw_the_definition_is_told_everything",
        (
            "runtime/planbook.py",
            "        if canonical is None:\n            raise Unk",
            "        if True:\n            raise Unk",
        ),
    ),
    "i5": red(
        _I + "i5_a_start_that_comes_again_wipes_nothing",
        (
            "adapters/embedded/state.py",
            "return applied if applied is not None else Applied(now=self._now(running))",
            "return applied or await self.admit(running.accepted, running.plan)",
        ),
    ),
}

ELSEWHERE: dict[str, Red] = {
    "i2-crowd": red(
        _TICKS + "i2_many_schedulers_at_once_start_each_tick_once",
        (
            "runtime/starts.py",
            'self._start(trigger, input, name, f"tick:{trigger.id}:{tick}", limited=False)',
            "self._start(trigger, input, new_execution_id(), None, limited=False)",
        ),
    ),
    "i2-dies": red(
        _TICKS + "i2_a_scheduler_that_dies_anywhere_loses_no_tick_and_starts_none_twice",
        (
            "core/ticks.py",
            "    if standing.starting is not None:\n        return standing\n",
            "    standing = started(standing, None)\n",
        ),
    ),
    "i6-key": red(
        "tests/access/test_grants.py::test_h_i6_a_grant_to_one_key_is_nobody_elses",
        (
            "core/rights.py",
            "elif fits(each, principal):",
            "elif fits(each.partition(':')[0] + ':*', principal):",
        ),
    ),
    "i6-workflow": red(
        "tests/access/test_grants.py::test_h_i6_a_grant_to_a_workflow_is_for_its_stored_versions",
        ("core/rights.py", "if stored and fits(", "if fits("),
    ),
    "i7-cluster": same(
        "tests/rabbitmq_cluster/test_canary.py::test_h_i7_no_secret_is_seen_anywhere_in_a_cluster",
        NODES["i7-row"],
    ),
    "i8-routes": red(
        "tests/access/test_matrix.py::test_h_i8_every_route_answers_everybody_as_the_table_says",
        (
            "master/gate.py",
            '        raise ApiError("send a key that holds: `Authorization: Bearer …`", code="UNAUTHORIZED")\n',
            '        return Principal("nobody", "viewer")\n',
        ),
    ),
    "i8-scopes": red(
        "tests/access/test_scopes.py::test_h_i8_a_scope_opens_its_workflows_and_no_others",
        (
            "master/access/scoping.py",
            "if accepted is not None and not principal.sees(accepted.workflow):",
            "if False:",
        ),
    ),
    "i13": red(
        "tests/contract/test_retention.py::TestRetention::test_h_i13_removing_history_shrinks_the_file",
        ("adapters/embedded/retention.py", "PRAGMA incremental_vacuum({pages}); ", ""),
    ),
}
"""Tests that stand in other folders, beside others of the same subject."""
