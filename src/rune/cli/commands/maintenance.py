"""`rune prune`, `rune backup`, `rune restore` and `rune verify`: maintain the stores."""

from __future__ import annotations

import asyncio
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from rune import bootstrap
from rune.cli.backend import (
    call_local_service,
    exists,
    read_local,
    require_local,
    resolve,
    run_reporting_errors,
)
from rune.cli.output import by_status, clean, count, duration, paint, print_json, print_table
from rune.ports.inspection import BackupResult
from rune.ports.journal import StoreDamagedError, StoreUnavailableError
from rune.ports.retention import InvalidRuleError, RetentionResult, Rule, parse_duration
from rune.runtime.queries.reader import ExecutionReader
from rune.runtime.queries.verify import VerificationReport, unreadable, verify_execution
from rune.settings import Settings, load_settings

PAGE_SIZE = 500
COUNTS = (
    "facts",
    "results",
    "retries",
    "waits",
    "joins",
    "skipped",
    "open",
    "late",
    "effects",
    "claims",
    "repeated",
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


class Ended(StrEnum):
    """The status of an ended execution."""

    completed = "completed"
    failed = "failed"
    halted = "halted"
    cancelled = "cancelled"


def prune(
    workflow: Annotated[
        str | None, typer.Option("--workflow", "-w", help="Only executions of this workflow.")
    ] = None,
    status: Annotated[
        list[Ended] | None,
        typer.Option("--status", "-s", help="Only executions that ended with this status. Repeatable."),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", help="Only executions that ended longer ago than this: 90s, 15m, 12h, 30d, 2w."
        ),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option("--keep", min=0, help="Keep this many of the newest executions of each workflow."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print how many executions would be deleted.")
    ] = False,
    vacuum: Annotated[
        bool,
        typer.Option(
            "--vacuum",
            help="Afterwards compact the database. A local file is rewritten, which no other process may be using; on a"
            " cluster the owner's tables are, and processes wait that long.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Delete ended executions.

    Without options, the configured retention rules apply; by default there are
    none. Executions that have not ended, or that another execution needs, are
    kept.

    Examples:
      rune prune --older-than 30d
      rune prune --status completed --keep 1000 --dry-run
    """

    def work() -> int:
        settings = load_settings()
        require_local(settings, "prune")
        rules = _rules(settings, workflow, tuple(each.value for each in status or ()), older_than, keep)
        return _delete(settings, rules, dry_run=dry_run, vacuum=vacuum, as_json=as_json)

    raise typer.Exit(run_reporting_errors(work, as_json=as_json))


def _rules(
    settings: Settings,
    workflow: str | None,
    status: tuple[str, ...],
    older_than: str | None,
    keep: int | None,
) -> tuple[Rule, ...]:
    """Return the rule of the command line, or else the configured rules."""
    if workflow is None and not status and older_than is None and keep is None:
        return settings.retention
    if older_than is None and keep is None:
        raise InvalidRuleError(
            "give an age (--older-than 30d) or a number to keep (--keep 1000; --keep 0 keeps none)"
        )
    try:
        age = None if older_than is None else parse_duration(older_than)
    except InvalidRuleError as error:
        raise InvalidRuleError(f"--older-than: {error.message}") from None
    return (Rule(workflow=workflow, status=status, older_than=age, keep=keep),)


def _delete(
    settings: Settings, rules: tuple[Rule, ...], *, dry_run: bool, vacuum: bool, as_json: bool
) -> int:
    done = RetentionResult()
    found_store = exists(settings)
    if found_store and vacuum and not dry_run:
        asyncio.run(bootstrap.check_vacuum(settings))  # before anything is deleted
    if found_store and rules and dry_run:
        done = asyncio.run(bootstrap.preview(settings, rules, time.time_ns() // 1_000_000))
    elif found_store and rules:
        done = call_local_service(settings, lambda service: service.executions.delete_ended(rules))
    if found_store and vacuum and not dry_run:
        done = asyncio.run(_vacuum(settings, done))
    _print(done, rules, dry_run=dry_run, vacuum=vacuum, as_json=as_json)
    return 0


async def _vacuum(settings: Settings, done: RetentionResult) -> RetentionResult:
    began = time.perf_counter()
    before, after = await bootstrap.vacuum(settings)
    return msgspec.structs.replace(
        done,
        bytes_before=done.bytes_before or before,
        bytes_after=after,
        duration_ms=done.duration_ms + round((time.perf_counter() - began) * 1000),
        shrinks=True,
    )


def _print(
    done: RetentionResult, rules: tuple[Rule, ...], *, dry_run: bool, vacuum: bool, as_json: bool
) -> None:
    if as_json:
        print_json({**msgspec.to_builtins(done), "rules": len(rules), "dry_run": dry_run})
        return

    if not rules:
        print("No retention rule is configured, so nothing is deleted; see `rune prune --help`.")
    elif dry_run:
        print(f"would delete {count(done.executions, 'execution')}; database size {_size(done.bytes_before)}")
    else:
        parts = [
            count(getattr(done, f"{noun}s"), noun)
            for noun in ("execution", "fact", "blob", "definition", "key")
        ]
        print(f"deleted {', '.join(parts)}")
    if not dry_run and (rules or vacuum):
        print(
            f"database size {_size(done.bytes_before)} → {_size(done.bytes_after)}; took {duration(done.duration_ms)}"
        )
    if not done.shrinks:
        print(
            "This file was created by a version whose files do not shrink: its free space is reused but not returned to"
            " the disk.\nRun `rune prune --vacuum` once, while no other process uses the file, to change that."
        )


def _size(size: float) -> str:
    """Format as `812 B` or `1.4 GB`."""
    for unit in ("B", "kB", "MB"):
        if size < 1_000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1_000
    return f"{size:.1f} GB"


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Path of the backup; it must not exist.")],
    as_json: Json = False,
) -> None:
    """Back up the database while it is in use.

    For the embedded backend. The backup contains every acknowledged change, but
    not the encryption keys of the credentials: keep a copy of `secret.key`
    elsewhere.

    Example: rune backup nightly.db
    """

    def work() -> int:
        settings = load_settings()
        require_local(settings, "backup")
        found = bootstrap.backup(settings, file)
        if as_json:
            _print_json(found, file=str(file))
            return 0
        print(f"backed up {_summary(found)} to {file}")
        if found.credentials:
            print(
                f"{found.credentials} credentials are encrypted with a key that is not in the backup: keep that key too"
            )
        return 0

    raise typer.Exit(run_reporting_errors(work, as_json=as_json))


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Backup written by `rune backup`.")],
    replace: Annotated[bool, typer.Option("--replace", help="Move an existing database file aside.")] = False,
    as_json: Json = False,
) -> None:
    """Restore a backup. No process may be using the database.

    For the embedded backend. Executions that have not ended resume with the
    next `rune run`.

    Example: rune restore nightly.db --replace
    """

    def work() -> int:
        settings = load_settings()
        require_local(settings, "restore")
        found, aside = bootstrap.restore(settings, file, replace=replace)
        if as_json:
            _print_json(found, file=str(file), set_aside=None if aside is None else str(aside))
            return 0
        print(f"restored {_summary(found)}")
        if aside is not None:
            print(f"the previous file is now {aside}")
        return 0

    raise typer.Exit(run_reporting_errors(work, as_json=as_json))


def _summary(found: BackupResult) -> str:
    return f"{count(found.executions, 'execution')} ({found.running:,} not ended)"


def _print_json(found: BackupResult, **more: str | None) -> None:
    print_json({**msgspec.to_builtins(found), **more})


def verify(
    executions: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]", help="Execution ids, or unique prefixes of them."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Check every execution.")] = False,
    as_json: Json = False,
) -> None:
    """Replay the journal and check its invariants. Exits 1 on a violation.

    Examples:
      rune verify --all
      rune verify x019a --json
    """
    if everything == bool(executions):
        raise typer.BadParameter("give execution ids or --all")

    async def work(reader: ExecutionReader) -> int:
        return await _verify_all(reader, executions or [], as_json=as_json)

    def empty() -> int:
        return _Report(as_json=as_json).close()

    raise typer.Exit(read_local(work, "verify", as_json=as_json, without_file=empty if everything else None))


async def _verify_all(reader: ExecutionReader, given: list[str], *, as_json: bool) -> int:
    report = _Report(as_json=as_json)
    for each in given:
        report.add(await _verify(reader, await resolve(reader, each)), named=True)
    after: str | None = None
    while not given:
        page = await reader.executions(after=after, limit=PAGE_SIZE)
        for summary in page:
            report.add(await _verify(reader, summary.id), named=False)
        if len(page) < PAGE_SIZE:
            break
        after = page[-1].id
    return report.close()


async def _verify(reader: ExecutionReader, execution: str) -> VerificationReport:
    """Verify one execution. One that cannot be read is a violation, and the others are verified all the same."""
    try:
        # The owner may be writing: read everything from one snapshot.
        async with reader.snapshot():
            claims = await reader.claims(execution)
            stored = await reader.facts(execution)
            summary = await reader.execution(execution)
        assert summary is not None
        plan, accepted = await reader.plan(execution), await reader.accepted(execution)
        return verify_execution(plan, accepted, stored, claims, summary)
    except StoreDamagedError as error:
        return unreadable(execution, error.message)
    except StoreUnavailableError:
        raise
    except Exception as error:
        # Rows that were changed by hand or by the disk can have any content.
        return unreadable(execution, f"{type(error).__name__}: {error}")


class _Report:
    """Sums up the checked executions; lists those with violations and those given by id."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._listed: list[VerificationReport] = []
        self._totals = dict.fromkeys(COUNTS, 0)
        self._executions = 0
        self._violations = 0

    def add(self, report: VerificationReport, *, named: bool) -> None:
        self._executions += 1
        self._violations += len(report.violations)
        for name in COUNTS:
            self._totals[name] += getattr(report, name)
        if named or report.violations:
            self._listed.append(report)

    def close(self) -> int:
        """Print the report and return the exit code."""
        if self._as_json:
            self._print_json()
        else:
            self._print()
        return 1 if self._violations else 0

    def _print_json(self) -> None:
        document: dict[str, Any] = {
            "status": "violated" if self._violations else "sound",
            "executions": self._executions,
            "violations": self._violations,
            "totals": self._totals,
            "audits": msgspec.to_builtins(self._listed),
        }
        print_json(document)

    def _print(self) -> None:
        if self._listed:
            rows = [
                [each.execution_id, by_status(each.status), *(f"{getattr(each, name):,}" for name in COUNTS)]
                for each in self._listed
            ]
            print_table(("id", "status", *COUNTS), rows)
        for each in self._listed:
            for violation in each.violations:
                line = f"{each.execution_id} {violation.subject}: {violation.message} [{violation.rule}]"
                print(f"{paint('violation', 'red')} {clean(line)}")
        totals = ", ".join(f"{self._totals[name]:,} {name}" for name in COUNTS)
        print(f"{count(self._executions, 'execution')}: {totals}")
        verdict = count(self._violations, "violation") if self._violations else "no violations"
        print(paint(verdict, "red" if self._violations else "green"))
