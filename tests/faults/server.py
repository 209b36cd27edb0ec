"""Faults of hazards I: the server, its triggers and permissions. Some of the tests are in other folders."""

from __future__ import annotations

import sys
from typing import Any

from tests.faults.change import replace, skip
from tests.faults.fault import Fault, fault, same
from tests.faults.nodes import TABLE as NODES

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
        from rune.core.schedules import started

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
            return Principal("anonymous", "viewer")

    return changed


TABLE: dict[str, Fault] = {
    "i1": fault(
        "test_recovery.py::test_h_i1_accepted_execution_that_was_not_opened_runs",
        replace("rune.runtime.maintenance.outbox_relay:OutboxRelay._serve", _serve_only_ends),
        hangs=True,
    ),
    "i3": fault(
        "test_events.py::test_h_i3_stream_ends_with_actual_status",
        replace("rune.runtime.queries.history:_execution_event", _report_completed),
    ),
    "i4": fault(
        "test_events.py::test_h_i4_server_without_definition_streams_all_events",
        replace("rune.runtime.plan_cache:PlanCache.plan", _know_only_plans_in_memory),
    ),
    "i5": fault(
        "test_recovery.py::test_h_i5_repeated_activation_deletes_nothing",
        replace("rune.adapters.sqlite.state:SqliteState.begin", _admit_again),
    ),
}

ELSEWHERE: dict[str, Fault] = {
    "i2-crowd": fault(
        _TICKS + "i2_concurrent_schedulers_start_each_tick_once",
        replace("rune.runtime.services.triggered_starts:TriggeredStarts._start", _start_without_name),
    ),
    "i2-dies": fault(
        _TICKS + "i2_crashed_scheduler_loses_no_tick_and_starts_none_twice",
        replace("rune.core.schedules:advance", _forget_starting_tick),
    ),
    "i6-key": fault(
        "tests/acceptance/access/test_grants.py::test_h_i6_grant_to_key_denies_other_keys",
        replace("rune.core.permissions:permits", _grant_to_all_of_a_kind),
    ),
    "i6-workflow": fault(
        "tests/acceptance/access/test_grants.py::test_h_i6_grant_to_workflow_covers_stored_versions_only",
        replace("rune.core.permissions:permits", _take_for_stored),
    ),
    "i7-cluster": same(
        "tests/integration/cluster/test_secret_leaks.py::test_h_i7_secrets_do_not_leak_from_cluster",
        NODES["i7-row"],
    ),
    "i8-routes": fault(
        "tests/acceptance/access/test_matrix.py::test_h_i8_every_route_enforces_permission_matrix",
        replace("rune.server.auth:ApiKeyAuth.authenticate", _admit_without_key),
    ),
    "i8-scopes": fault(
        "tests/acceptance/access/test_scopes.py::test_h_i8_scope_allows_only_its_workflows",
        skip("rune.server.auth:_check_execution"),
    ),
    "i13": fault(
        "tests/integration/sqlite/test_retention.py::TestRetention::test_h_i13_removing_history_shrinks_the_file",
        replace(
            "rune.adapters.sqlite.retention:_cut",
            lambda cut: lambda db, pages, leave: cut(db, pages, sys.maxsize),
        ),
    ),
}
"""Tests in other folders, beside others of the same subject."""
