"""`rune gc`: remove executions that have ended, and make the file smaller.

`rune backup` and `rune restore`: a copy of the embedded file while it is in use, and back.

`rune audit`: whether the journal holds nothing that the rules could not have written.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rune.ports.inspection import BackupResult
    from rune.ports.retention import RetentionResult, Rule
    from rune.runtime.queries.reader import ExecutionReader
    from rune.runtime.queries.verify import VerificationReport
    from rune.settings import Settings


class Ended(StrEnum):
    """How an execution may have ended."""

    completed = "completed"
    failed = "failed"
    halted = "halted"
    cancelled = "cancelled"


def gc(
    workflow: Annotated[
        str | None, typer.Option("--workflow", "-w", help="Only executions of this workflow.")
    ] = None,
    status: Annotated[
        list[Ended] | None,
        typer.Option("--status", "-s", help="Only those that ended like this; may be given again."),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", help="Only those that ended so long ago: 90s, 15m, 12h, 30d, 2w."),
    ] = None,
    keep: Annotated[
        int | None, typer.Option("--keep", min=0, help="Spare the newest so many of each workflow.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many would go.")] = False,
    vacuum: Annotated[
        bool, typer.Option("--vacuum", help="Then write the file anew; it must be in nobody's use.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Remove ended executions. Without options: by the rules of the configuration, whose default is none.

    What has not ended stays, and so does what others need.

    Examples: rune gc --older-than 30d; rune gc --status completed --keep 1000 --dry-run
    """
    from rune.cli.backend import run_reporting_errors

    def work() -> int:
        from rune.cli.backend import require_local
        from rune.settings import load_settings

        settings = load_settings()
        require_local(settings, "gc")
        rules = _rules(settings, workflow, tuple(each.value for each in status or ()), older_than, keep)
        return _collect(settings, rules, dry_run=dry_run, vacuum=vacuum, as_json=as_json)

    raise typer.Exit(run_reporting_errors(work, as_json=as_json))


def _rules(
    settings: Settings,
    workflow: str | None,
    status: tuple[str, ...],
    older_than: str | None,
    keep: int | None,
) -> tuple[Rule, ...]:
    """What was asked for on the command line, or what is configured."""
    from rune.ports.retention import (
        InvalidRuleError,
        Rule,
        parse_duration,
    )

    if workflow is None and not status and older_than is None and keep is None:
        return settings.retention
    if older_than is None and keep is None:
        raise InvalidRuleError(
            "say how old (--older-than 30d) or how many to spare (--keep 1000; --keep 0 spares none)"
        )
    try:
        age = None if older_than is None else parse_duration(older_than)
    except InvalidRuleError as error:
        raise InvalidRuleError(f"--older-than: {error.message}") from None
    return (Rule(workflow=workflow, status=status, older_than=age, keep=keep),)


def _collect(
    settings: Settings, rules: tuple[Rule, ...], *, dry_run: bool, vacuum: bool, as_json: bool
) -> int:
    import asyncio
    import time

    from rune import bootstrap
    from rune.cli.backend import ask
    from rune.ports.retention import RetentionResult

    done = RetentionResult()
    there = bootstrap.exists(settings)
    if there and rules and dry_run:
        done = asyncio.run(bootstrap.preview(settings, rules, time.time_ns() // 1_000_000))
    elif there and rules:
        done = ask(settings, lambda services: services.executions.delete_ended(rules))
    if there and vacuum and not dry_run:
        done = asyncio.run(_vacuumed(settings, done))
    _print(done, rules, dry_run=dry_run, vacuum=vacuum, as_json=as_json)
    return 0


async def _vacuumed(settings: Settings, done: RetentionResult) -> RetentionResult:
    import time

    import msgspec

    from rune import bootstrap

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
        import msgspec

        from rune.cli.output import print_json

        print_json({**msgspec.to_builtins(done), "rules": len(rules), "dry_run": dry_run})
        return
    from rune.cli.output import count, duration

    if not rules:
        print("No rule of retention is configured, so nothing is removed; see `rune gc --help`.")
    elif dry_run:
        print(f"would remove {count(done.executions, 'execution')}; the file has {_size(done.bytes_before)}")
    else:
        parts = [
            count(getattr(done, f"{noun}s"), noun)
            for noun in ("execution", "fact", "blob", "definition", "key")
        ]
        print(f"removed {', '.join(parts)}")
    if not dry_run and (rules or vacuum):
        print(
            f"the file had {_size(done.bytes_before)} and has {_size(done.bytes_after)}; {duration(done.duration_ms)}"
        )
    if not done.shrinks:
        print(
            "The file was made by a version whose files do not shrink: free space in it is used again but not given"
            " back.\n`rune gc --vacuum`, run while nobody else uses the file, changes that once and for all."
        )


def _size(size: float) -> str:
    """`812 B`, `1.4 GB`."""
    for unit in ("B", "kB", "MB"):
        if size < 1_000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1_000
    return f"{size:.1f} GB"


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to; it must not be there yet.")],
    as_json: Json = False,
) -> None:
    """Copy the embedded file, whoever uses it meanwhile: everything that was acknowledged is in the copy.

    The keys of the credentials are not: keep `secret.key` too, somewhere else.

    Example: rune backup nightly.db
    """
    from rune import bootstrap
    from rune.cli.backend import (
        require_local,
        run_reporting_errors,
    )
    from rune.settings import load_settings

    def work() -> int:
        settings = load_settings()
        require_local(settings, "backup")
        found = bootstrap.backup(settings, file)
        if as_json:
            _print_json(found, file=str(file))
            return 0
        print(f"{_said(found)} are in {file}")
        if found.credentials:
            print(f"{found.credentials} credentials are sealed with a key that is not in it: keep that too")
        return 0

    raise typer.Exit(run_reporting_errors(work, as_json=as_json))


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `rune backup` wrote.")],
    replace: Annotated[bool, typer.Option("--replace", help="Set aside the file that is there now.")] = False,
    as_json: Json = False,
) -> None:
    """Make a copy the embedded file. Nobody may own the file; what has not ended goes on with the next `rune run`.

    Example: rune restore nightly.db --replace
    """
    from rune import bootstrap
    from rune.cli.backend import (
        require_local,
        run_reporting_errors,
    )
    from rune.settings import load_settings

    def work() -> int:
        settings = load_settings()
        require_local(settings, "restore")
        found, aside = bootstrap.restore(settings, file, replace=replace)
        if as_json:
            _print_json(found, file=str(file), set_aside=None if aside is None else str(aside))
            return 0
        print(f"{_said(found)} are back")
        if aside is not None:
            print(f"what was there is in {aside}")
        return 0

    raise typer.Exit(run_reporting_errors(work, as_json=as_json))


def _said(found: BackupResult) -> str:
    from rune.cli.output import count

    return f"{count(found.executions, 'execution')}, {found.running:,} of them not ended,"


def _print_json(found: BackupResult, **more: str | None) -> None:
    import msgspec

    from rune.cli.output import print_json

    print_json({**msgspec.to_builtins(found), **more})


PAGE = 500
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


def audit(
    executions: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]", help="Executions; the beginning of an id is enough."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every execution in the file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Fold the journal anew and look for anything that cannot be: exits 1 if there is.

    Examples: rune audit --all; rune audit x019a --json
    """
    from rune.cli.backend import read

    if everything == bool(executions):
        raise typer.BadParameter("name executions, or say --all")

    async def work(reader: ExecutionReader, settings: Settings) -> int:
        return await _audit(reader, executions or [], as_json=as_json)

    def empty() -> int:
        return _Report(as_json=as_json).close()

    raise typer.Exit(read(work, as_json=as_json, without_file=empty if everything else None, here="audit"))


async def _audit(reader: ExecutionReader, given: list[str], *, as_json: bool) -> int:
    from rune.cli.backend import resolve

    report = _Report(as_json=as_json)
    for each in given:
        report.add(await _one(reader, await resolve(reader, each)), named=True)
    after: str | None = None
    while not given:
        page = await reader.executions(after=after, limit=PAGE)
        for summary in page:
            report.add(await _one(reader, summary.id), named=False)
        if len(page) < PAGE:
            break
        after = page[-1].id
    return report.close()


async def _one(reader: ExecutionReader, execution: str) -> VerificationReport:
    from rune.runtime.queries.verify import verify_execution as examine

    async with reader.still():  # the owner may be writing: everything is of one moment
        claims = await reader.claims(execution)
        stored = await reader.facts(execution)
        summary = await reader.execution(execution)
    assert summary is not None
    return examine(await reader.plan(execution), await reader.accepted(execution), stored, claims, summary)


class _Report:
    """Adds audits up; only what is wrong, or was asked for by name, is kept."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._kept: list[VerificationReport] = []
        self._totals = dict.fromkeys(COUNTS, 0)
        self._executions = 0
        self._violations = 0

    def add(self, audit: VerificationReport, *, named: bool) -> None:
        self._executions += 1
        self._violations += len(audit.violations)
        for name in COUNTS:
            self._totals[name] += getattr(audit, name)
        if named or audit.violations:
            self._kept.append(audit)

    def close(self) -> int:
        """Print it; answers the exit code."""
        if self._as_json:
            self._print_json()
        else:
            self._print()
        return 1 if self._violations else 0

    def _print_json(self) -> None:
        import msgspec

        from rune.cli.output import print_json

        document: dict[str, Any] = {
            "status": "violated" if self._violations else "sound",
            "executions": self._executions,
            "violations": self._violations,
            "totals": self._totals,
            "audits": msgspec.to_builtins(self._kept),
        }
        print_json(document)

    def _print(self) -> None:
        from rune.cli.output import by_status, clean, count, paint, print_table

        if self._kept:
            rows = [
                [each.execution_id, by_status(each.status), *(f"{getattr(each, name):,}" for name in COUNTS)]
                for each in self._kept
            ]
            print_table(("id", "status", *COUNTS), rows)
        for each in self._kept:
            for violation in each.violations:
                said = f"{each.execution_id} {violation.subject}: {violation.message} [{violation.rule}]"
                print(f"{paint('violation', 'red')} {clean(said)}")
        totals = ", ".join(f"{self._totals[name]:,} {name}" for name in COUNTS)
        print(f"{count(self._executions, 'execution')}: {totals}")
        verdict = count(self._violations, "violation") if self._violations else "no violations"
        print(paint(verdict, "red" if self._violations else "green"))
