"""`rune bulk`: one action on many executions."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from rune.cli.arguments import (
    Code,
    Failed,
    FailedItems,
    Labels,
    Parent,
    RetryOf,
    Since,
    StartedBy,
    Statuses,
    Stuck,
    Until,
    VersionNumber,
    Workflow,
    ago,
    labels_of,
    statuses_of,
)
from rune.cli.backend import CommandServices, query_api, resolve_with_client
from rune.cli.output import VIOLATIONS, Cell, by_status, count, local_time, print_json, print_table
from rune.client import AsyncClient, models
from rune.ports.clock import iso

MAX_SHOWN = 20

bulk = typer.Typer(
    name="bulk",
    help="Cancel, pause, resume, retry or requeue many executions.\n\n"
    "Each `rune bulk start` creates a job, which continues after a crash.",
    no_args_is_help=True,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Job = Annotated[str, typer.Argument(metavar="JOB", help="Id of a bulk job.")]


class Action(StrEnum):
    """What is done to each execution."""

    cancel = "cancel"
    pause = "pause"
    resume = "resume"
    retry = "retry"
    retry_failed_items = "retry-failed-items"
    requeue = "requeue"


class Outcome(StrEnum):
    """What became of an execution."""

    done = "done"
    unchanged = "unchanged"
    refused = "refused"


@bulk.command()
def start(
    action: Annotated[Action, typer.Argument(metavar="ACTION", help="What to do to each execution.")],
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="Executions, by id or unique prefix, instead of a filter."),
    ] = None,
    status: Statuses = None,
    failed: Failed = False,
    failed_items: FailedItems = False,
    stuck: Stuck = False,
    workflow: Workflow = None,
    version: VersionNumber = None,
    label: Labels = None,
    since: Since = None,
    until: Until = None,
    code: Code = None,
    principal: StartedBy = None,
    parent: Parent = None,
    retry_of: RetryOf = None,
    limit: Annotated[
        int,
        typer.Option("--limit", "-n", min=1, max=10_000, help="Maximum number of executions, newest first."),
    ] = 1_000,
    reason: Annotated[str, typer.Option("--reason", help="Reason of a cancellation.")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print how many executions would be processed.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Act on many executions and wait until all are processed.

    The actions: cancel, pause, resume, retry, retry-failed-items, requeue.
    Executions are selected by id or by the filters of `rune list`. One of the two
    is required, so that no call selects every execution by mistake. If the action
    is not possible for an execution, that execution is refused and listed. Ctrl-C
    does not stop the job; `rune bulk abort` does.

    Exit codes: 0 no execution was refused; 1 some were; 2 invalid request.

    Examples:
      rune bulk start retry --code HTTP_TIMEOUT --since 2h
      rune bulk start cancel --workflow orders --status running --dry-run
      rune bulk start pause x019a x019b
    """
    if version is not None and workflow is None:
        raise typer.BadParameter("--version requires --workflow")

    async def work(client: AsyncClient, services: CommandServices) -> int:
        filters = {
            "status": list(statuses_of(status, failed=failed)),
            "failed_items": failed_items,
            "stuck": stuck,
            "workflow": workflow,
            "version": version,
            "labels": labels_of(tuple(label or ())),
            "since": iso(ago(since)),
            "until": iso(ago(until)),
            "code": code,
            "principal": principal,
            "parent": parent,
            "retry_of": retry_of,
        }
        selection = await _select(client, ids or [], filters, limit)
        named = action.value.replace("-", "_")
        if dry_run:
            _print_preview(await client.bulk_preview(named, **selection), as_json=as_json)
            return 0
        job = await client.bulk(named, **selection, reason=reason)
        await services.bulk.finish(job.id)
        return await _report(client, await client.bulk_job(job.id), as_json=as_json)

    raise typer.Exit(query_api(work, as_json=as_json))


async def _select(client: AsyncClient, ids: list[str], filters: dict[str, Any], limit: int) -> dict[str, Any]:
    """Return which executions are meant: those with the given ids, or those that the filters select."""
    wanted = {name: value for name, value in filters.items() if value}
    if ids and wanted:
        raise typer.BadParameter("give either ids or filters")
    if ids:
        return {"ids": [await resolve_with_client(client, each) for each in ids]}
    return {"filter": wanted, "limit": limit}


async def _report(client: AsyncClient, job: models.BulkJob, *, as_json: bool) -> int:
    refused = [each async for each in client.bulk_outcomes(job.id, outcome="refused")]
    if as_json:
        print_json({**msgspec.to_builtins(job), "outcomes": msgspec.to_builtins(refused)})
    else:
        print(f"{job.id}: {_counts(job)}")
        _print_outcomes(refused[:MAX_SHOWN])
        if len(refused) > MAX_SHOWN:
            print(f"… and {len(refused) - MAX_SHOWN:,} more; see `rune bulk show {job.id} --outcome refused`")
    return VIOLATIONS if job.refused else 0


def _counts(job: models.BulkJob) -> str:
    return (
        f"{job.action} of {count(job.total, 'execution')} {job.status}: {job.done:,} done,"
        f" {job.unchanged:,} unchanged, {job.refused:,} refused, {job.pending:,} pending"
    )


def _print_preview(found: models.BulkPreview, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    more = "; more match than --limit" if found.more else ""
    print(
        f"would process {count(found.total, 'execution')}, of which {found.eligible:,} can be changed{more}"
    )
    if found.by_status:
        print_table(
            ("status", "executions"),
            [[by_status(name), f"{number:,}"] for name, number in found.by_status.items()],
        )


def _print_outcomes(found: list[models.BulkOutcome]) -> None:
    rows: list[list[Cell]] = [
        [
            each.execution_id,
            each.outcome,
            each.started or "",
            (f"{each.code}: {each.detail}".strip(": "), "red"),
        ]
        for each in found
    ]
    if rows:
        print_table(("id", "outcome", "started", "error"), rows)


@bulk.command("list")
def list_jobs(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=200, help="Maximum number of jobs.")] = 20,
    as_json: Json = False,
) -> None:
    """List bulk jobs, newest first. They are kept for 30 days."""

    async def work(client: AsyncClient, services: CommandServices) -> int:
        return _print_jobs(await client.bulk_jobs(limit), as_json=as_json)

    raise typer.Exit(query_api(work, as_json=as_json, without_file=lambda: _print_jobs([], as_json=as_json)))


def _print_jobs(found: list[models.BulkJob], *, as_json: bool) -> int:
    if as_json:
        print_json({"jobs": msgspec.to_builtins(found)})
    elif not found:
        print("no bulk jobs")
    else:
        rows: list[list[Cell]] = [
            [
                each.id,
                each.action,
                by_status(each.status),
                local_time(each.created_at),
                each.principal,
                *(f"{number:,}" for number in (each.total, each.done, each.unchanged, each.refused)),
            ]
            for each in found
        ]
        print_table(
            ("job", "action", "status", "created", "by", "total", "done", "unchanged", "refused"), rows
        )
    return 0


@bulk.command()
def show(
    job: Job,
    outcome: Annotated[
        Outcome | None, typer.Option("--outcome", help="Only executions with this outcome.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a bulk job and what became of each execution.

    Example: rune bulk show b4f1 --outcome refused
    """

    async def work(client: AsyncClient, services: CommandServices) -> int:
        found = await client.bulk_job(job)
        which = None if outcome is None else outcome.value
        outcomes = [each async for each in client.bulk_outcomes(job, outcome=which)]
        if as_json:
            print_json({**msgspec.to_builtins(found), "outcomes": msgspec.to_builtins(outcomes)})
        else:
            print(f"{found.id}: {_counts(found)}")
            _print_outcomes(outcomes)
        return 0

    raise typer.Exit(query_api(work, as_json=as_json))


@bulk.command()
def abort(job: Job, as_json: Json = False) -> None:
    """Stop a bulk job before its next execution. Actions that were carried out are not undone."""

    async def work(client: AsyncClient, services: CommandServices) -> int:
        found = await client.abort_bulk(job)
        print_json(found) if as_json else print(f"{found.id}: {_counts(found)}")
        return 0

    raise typer.Exit(query_api(work, as_json=as_json))
