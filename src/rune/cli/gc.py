"""`rune gc`: remove executions that have ended, and make the file smaller."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rune.ports.retention import Collected, Rule
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
    from rune.cli.library import refusing  # noqa: PLC0415 - help must be quick

    def work() -> int:
        from rune.cli.local import stay_here  # noqa: PLC0415
        from rune.settings import load_settings  # noqa: PLC0415

        settings = load_settings()
        stay_here(settings, "gc")
        rules = _rules(settings, workflow, tuple(each.value for each in status or ()), older_than, keep)
        return _collect(settings, rules, dry_run=dry_run, vacuum=vacuum, as_json=as_json)

    raise typer.Exit(refusing(work, as_json=as_json))


def _rules(
    settings: Settings,
    workflow: str | None,
    status: tuple[str, ...],
    older_than: str | None,
    keep: int | None,
) -> tuple[Rule, ...]:
    """What was asked for on the command line, or what is configured."""
    from rune.ports.retention import BadRule, Rule  # noqa: PLC0415
    from rune.ports.ruletext import parse_duration  # noqa: PLC0415

    if workflow is None and not status and older_than is None and keep is None:
        return settings.retention
    if older_than is None and keep is None:
        raise BadRule(
            "say how old (--older-than 30d) or how many to spare (--keep 1000; --keep 0 spares none)"
        )
    try:
        age = None if older_than is None else parse_duration(older_than)
    except BadRule as error:
        raise BadRule(f"--older-than: {error.message}") from None
    return (Rule(workflow=workflow, status=status, older_than=age, keep=keep),)


def _collect(
    settings: Settings, rules: tuple[Rule, ...], *, dry_run: bool, vacuum: bool, as_json: bool
) -> int:
    import asyncio  # noqa: PLC0415
    import time  # noqa: PLC0415

    from rune import compose  # noqa: PLC0415
    from rune.cli.library import ask  # noqa: PLC0415
    from rune.ports.retention import Collected  # noqa: PLC0415

    done = Collected()
    there = compose.exists(settings)
    if there and rules and dry_run:
        done = asyncio.run(compose.preview(settings, rules, time.time_ns() // 1_000_000))
    elif there and rules:
        done = ask(settings, lambda desk: desk.collect(rules))
    if there and vacuum and not dry_run:
        done = asyncio.run(_vacuumed(settings, done))
    _print(done, rules, dry_run=dry_run, vacuum=vacuum, as_json=as_json)
    return 0


async def _vacuumed(settings: Settings, done: Collected) -> Collected:
    import time  # noqa: PLC0415

    import msgspec  # noqa: PLC0415

    from rune import compose  # noqa: PLC0415

    began = time.perf_counter()
    before, after = await compose.vacuum(settings)
    return msgspec.structs.replace(
        done,
        bytes_before=done.bytes_before or before,
        bytes_after=after,
        duration_ms=done.duration_ms + round((time.perf_counter() - began) * 1000),
        shrinks=True,
    )


def _print(done: Collected, rules: tuple[Rule, ...], *, dry_run: bool, vacuum: bool, as_json: bool) -> None:
    if as_json:
        import msgspec  # noqa: PLC0415

        from rune.cli.problems import print_json  # noqa: PLC0415

        print_json({**msgspec.to_builtins(done), "rules": len(rules), "dry_run": dry_run})
        return
    from rune.cli.text import count, duration  # noqa: PLC0415

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
