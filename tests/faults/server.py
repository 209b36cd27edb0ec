"""I: a server, its triggers, and who may ask it what. Some of these tests are beside others of the same subject."""

from __future__ import annotations

import sys
from typing import Any

from tests.faults.change import replace, skip
from tests.faults.fault import Fault, fault, same
from tests.faults.nodes import TABLE as NODES

_I = "test_hazards_i.py::test_h_"
_TICKS = "tests/integration/triggers/test_schedules.py::test_h_"


def _serve_only_ends(serve: Any) -> Any:
    async def changed(self: Any, notice: Any) -> None:
        if await self._journal.end(notice.execution) is not None:
            await serve(self, notice)

    return changed


def _report_completed(event: Any) -> Any:
    def changed(fact: Any) -> Any:
        from rune.core.execution.fact import ExecutionEnded

        return "execution.completed" if isinstance(fact, ExecutionEnded) else event(fact)

    return changed


def _know_only_plans_in_memory(plan: Any) -> Any:
    async def changed(self: Any, hash: str) -> Any:
        from rune.runtime.plan_cache import DefinitionNotFoundError

        if hash not in self._plans:
            raise DefinitionNotFoundError(f"no definition has the hash {hash}")
        return await plan(self, hash)

    return changed


def _admit_again(begin: Any) -> Any:
    async def changed(self: Any, execution: str) -> Any:
        running, applied = await self._load(execution)
        return applied or await self.admit(running.accepted, running.plan)

    return changed


def _start_without_name(start: Any) -> Any:
    """Ticks, which are held to no limit, are started under a new name each time."""

    async def changed(
        self: Any, trigger: Any, input: bytes, execution: str, key: Any, *, limited: bool = True
    ) -> Any:
        from rune.runtime.lifecycle.launcher import new_execution_id

        if not limited:
            execution, key = new_execution_id(), None
        return await start(self, trigger, input, execution, key, limited=limited)

    return changed


def _forget_starting_tick(advance: Any) -> Any:
    def changed(schedule: Any, following: Any, standing: Any, now: int, *, running: bool) -> Any:
        from rune.core.triggers import started

        return advance(schedule, following, started(standing, None), now, running=running)

    return changed


def _grant_to_all_of_a_kind(permits: Any) -> Any:
    def widen(grant: str) -> str:
        kind = grant.partition(":")[0]
        return grant if kind in ("everyone", "workflow") else f"{kind}:*"

    def changed(grants: Any, principal: str, workflow: str, *, stored: bool) -> Any:
        return permits([widen(each) for each in grants], principal, workflow, stored=stored)

    return changed


def _take_for_stored(permits: Any) -> Any:
    return lambda grants, principal, workflow, *, stored: permits(grants, principal, workflow, stored=True)


def _admit_without_key(admit: Any) -> Any:
    async def changed(self: Any, connection: Any) -> Any:
        from rune.core.permissions import Principal
        from rune.server.responses import ApiError

        try:
            return await admit(self, connection)
        except ApiError as error:
            if error.code != "UNAUTHORIZED":
                raise
            return Principal("nobody", "viewer")

    return changed


TABLE: dict[str, Fault] = {
    "i1": fault(
        _I + "i1_what_was_accepted_and_never_opened_runs",
        replace("rune.runtime.maintenance.outbox_relay:OutboxRelay._serve", _serve_only_ends),
        hangs=True,
    ),
    "i3": fault(
        _I + "i3_a_stream_ends_with_what_happened",
        replace("rune.runtime.queries.history:_execution_event", _report_completed),
    ),
    "i4": fault(
        _I + "i4_who_never_saw_the_definition_is_told_everything",
        replace("rune.runtime.plan_cache:PlanCache.plan", _know_only_plans_in_memory),
    ),
    "i5": fault(
        _I + "i5_a_start_that_comes_again_wipes_nothing",
        replace("rune.adapters.sqlite.state:SqliteState.begin", _admit_again),
    ),
}

ELSEWHERE: dict[str, Fault] = {
    "i2-crowd": fault(
        _TICKS + "i2_many_schedulers_at_once_start_each_tick_once",
        replace("rune.runtime.maintenance.trigger_scheduler:TriggeredStarts._start", _start_without_name),
    ),
    "i2-dies": fault(
        _TICKS + "i2_a_scheduler_that_dies_anywhere_loses_no_tick_and_starts_none_twice",
        replace("rune.core.triggers:advance", _forget_starting_tick),
    ),
    "i6-key": fault(
        "tests/acceptance/access/test_grants.py::test_h_i6_a_grant_to_one_key_is_nobody_elses",
        replace("rune.core.permissions:permits", _grant_to_all_of_a_kind),
    ),
    "i6-workflow": fault(
        "tests/acceptance/access/test_grants.py::test_h_i6_a_grant_to_a_workflow_is_for_its_stored_versions",
        replace("rune.core.permissions:permits", _take_for_stored),
    ),
    "i7-cluster": same(
        "tests/integration/rabbitmq_cluster/test_canary.py::test_h_i7_no_secret_is_seen_anywhere_in_a_cluster",
        NODES["i7-row"],
    ),
    "i8-routes": fault(
        "tests/acceptance/access/test_matrix.py::test_h_i8_every_route_answers_everybody_as_the_table_says",
        replace("rune.server.auth:ApiKeyAuth.authenticate", _admit_without_key),
    ),
    "i8-scopes": fault(
        "tests/acceptance/access/test_scopes.py::test_h_i8_a_scope_opens_its_workflows_and_no_others",
        skip("rune.server.auth:_check_execution"),
    ),
    "i13": fault(
        "tests/contract/test_retention.py::TestRetention::test_h_i13_removing_history_shrinks_the_file",
        replace(
            "rune.adapters.sqlite.retention:_cut",
            lambda cut: lambda db, pages, leave: cut(db, pages, sys.maxsize),
        ),
    ),
}
"""Tests in other folders, beside others of the same subject."""
