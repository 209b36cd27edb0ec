"""What `rune doctor` asks beside whether a store is there: rights, clocks, the broker, and room on the disk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rune.cli.doctor import Finding
    from rune.ports.inspection import Survey

SKEW, FAR_OFF = 1.0, 5.0  # s
LEAST_FREE, TOO_FULL = 1024**3, 64 * 1024**2
OLD_RABBITMQ = (3, 10)
MOST = 5  # that are named of what is missing


def journal_rights(seen: Survey) -> Iterator[Finding]:
    """As what the user of PostgreSQL may take part."""
    from rune.cli.doctor import Finding  # noqa: PLC0415 - help must be quick

    if not seen.journal_user:
        return
    migrates = "changes the schema too" if seen.may_migrate else "cannot change the schema"
    if not seen.journal_roles:
        found = f"{seen.journal_user} lacks {_some(seen.journal_lacks)}"
        yield Finding("postgresql rights", "bad", found, "have the owner run `rune migrate --roles`")
        return
    found = f"{seen.journal_user} can be {', '.join(seen.journal_roles)}; {migrates}"
    advice = "" if seen.may_migrate else "`rune migrate` is for the owner of the tables"
    yield Finding("postgresql rights", "ok", found, advice)


def state_rights(seen: Survey) -> Finding:
    """Whether the user of Redis may run what is needed."""
    from rune.cli.doctor import Finding  # noqa: PLC0415

    if seen.state_lacks:
        advice = "allow them in the ACL of this user, on keys and channels that begin with RUNE_PREFIX"
        return Finding("redis rights", "bad", f"not allowed: {_some(seen.state_lacks)}", advice)
    return Finding("redis rights", "ok", "every command that is needed")


def clock(check: str, skew: float) -> Finding:
    """How far a store's clock is from this machine's."""
    from rune.cli.doctor import Finding  # noqa: PLC0415

    found = f"{abs(skew):.3f} s {'ahead of' if skew > 0 else 'behind'} this machine"
    if abs(skew) < SKEW:
        return Finding(check, "ok", found)
    advice = "let both follow the same time (NTP): times in histories and schedules are off by this"
    return Finding(check, "bad" if abs(skew) >= FAR_OFF else "warn", found, advice)


def broker(seen: Survey) -> Iterator[Finding]:
    """RabbitMQ, where there is one."""
    from rune.cli.doctor import Finding  # noqa: PLC0415

    if not seen.queue:
        return
    if seen.queue_trouble:
        yield Finding("rabbitmq", "bad", seen.queue_trouble, "is it there, and does RUNE_QUEUE lead to it?")
        return
    found = f"{seen.rabbitmq} at {seen.queue}"
    old = tuple(int(part) for part in seen.rabbitmq.split(".")[:2] if part.isdigit()) < OLD_RABBITMQ
    yield Finding("rabbitmq", "warn" if old else "ok", found, "3.10 or newer is tested" if old else "")
    if seen.queue_differs:
        advice = "keep the RUNE_QUEUE_KIND it was made with, delete it, or use another RUNE_QUEUE_PREFIX"
        found = f"`{seen.queue_differs}` was declared otherwise; nobody with these settings can start"
        yield Finding("rabbitmq queues", "bad", found, advice)
    if seen.queue_lacks:
        advice = "give this user the rights that `rune topology` lists"
        found = f"as {seen.queue_role}, cannot {_some(seen.queue_lacks)}"
        yield Finding("rabbitmq rights", "bad", found, advice)
    elif seen.queue_missing:
        advice = "the first `rune serve` sets them up, or what `rune topology --definitions` prints"
        yield Finding(
            "rabbitmq rights", "ok", f"{seen.queue_missing} queues or exchanges are not there yet", advice
        )
    else:
        whose = "the API and the command line need" if seen.queue_role == "master" else "a worker needs"
        yield Finding("rabbitmq rights", "ok", f"reads and writes what {whose}")


def rooms(seen: Survey) -> Iterator[Finding]:
    """What is free where this machine writes."""
    from rune.cli.doctor import Finding  # noqa: PLC0415

    for folder, free in seen.rooms:
        verdict = "bad" if free < TOO_FULL else "warn" if free < LEAST_FREE else "ok"
        advice = {"bad": "make room: nothing can be written", "warn": "make room soon", "ok": ""}[verdict]
        yield Finding("disk", verdict, f"{free / 1024**3:,.1f} GiB free for {folder}", advice)


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return f"{', '.join(names[:MOST])}{more}"
