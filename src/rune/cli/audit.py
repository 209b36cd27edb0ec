"""`rune audit`: whether the journal holds nothing that the rules could not have written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rune.runtime.audit import Audit
    from rune.runtime.reader import Reader
    from rune.settings import Settings

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
    from rune.cli.reading import read  # noqa: PLC0415 - help must be quick

    if everything == bool(executions):
        raise typer.BadParameter("name executions, or say --all")

    async def work(reader: Reader, settings: Settings) -> int:
        return await _audit(reader, executions or [], as_json=as_json)

    def empty() -> int:
        return _Report(as_json=as_json).close()

    raise typer.Exit(read(work, as_json=as_json, without_file=empty if everything else None, here="audit"))


async def _audit(reader: Reader, given: list[str], *, as_json: bool) -> int:
    from rune.cli.reading import resolve  # noqa: PLC0415

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


async def _one(reader: Reader, execution: str) -> Audit:
    from rune.runtime.audit import audit as examine  # noqa: PLC0415

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
        self._kept: list[Audit] = []
        self._totals = dict.fromkeys(COUNTS, 0)
        self._executions = 0
        self._violations = 0

    def add(self, audit: Audit, *, named: bool) -> None:
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
        import msgspec  # noqa: PLC0415

        from rune.cli.problems import print_json  # noqa: PLC0415

        document: dict[str, Any] = {
            "status": "violated" if self._violations else "sound",
            "executions": self._executions,
            "violations": self._violations,
            "totals": self._totals,
            "audits": msgspec.to_builtins(self._kept),
        }
        print_json(document)

    def _print(self) -> None:
        from rune.cli.text import by_status, clean, count, paint, print_table  # noqa: PLC0415

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
