"""What `rune doctor` looks at on a cluster: both stores, who takes part, and the keys of the credentials."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rune.cli.checkup import broker, clock, journal_rights, rooms, state_rights

if TYPE_CHECKING:
    from rune.cli.doctor import Finding
    from rune.ports.inspection import Survey

OLD_POSTGRES, OLD_REDIS = 14, 7
SLOW = 20.0  # ms for a question that asks nothing
FULL = 0.8  # of the memory that Redis may use


def findings(seen: Survey) -> Iterator[Finding]:
    """One line each."""
    yield _journal(seen)
    if not seen.journal_trouble:
        yield _schema(seen)
        yield from journal_rights(seen)
        yield clock("postgresql clock", seen.journal_skew)
    yield _state(seen)
    if seen.redis:
        yield _kept(seen)
        yield _memory(seen)
        yield state_rights(seen)
        yield clock("redis clock", seen.state_skew)
        yield _workers(seen)
        yield _schedulers(seen)
    yield from broker(seen)
    yield from rooms(seen)
    yield _keys(seen)


def _journal(seen: Survey) -> Finding:
    from rune.cli.doctor import Finding  # noqa: PLC0415 - help must be quick

    if seen.journal_trouble:
        return Finding(
            "postgresql", "bad", seen.journal_trouble, "is it there, and does RUNE_JOURNAL lead to it?"
        )
    found = f"{seen.postgres} at {seen.journal}, answers in {seen.journal_ms:.2f} ms"
    if int(seen.postgres.partition(".")[0]) < OLD_POSTGRES:
        return Finding("postgresql", "bad", found, f"PostgreSQL {OLD_POSTGRES} is the oldest that will do")
    if not seen.fsync:
        return Finding(
            "postgresql", "bad", found, "fsync is off there: a power cut loses what was acknowledged"
        )
    if seen.journal_ms > SLOW:
        return Finding("postgresql", "warn", found, "it is far away: each lone step waits for it twice")
    return Finding("postgresql", "ok", found)


def _schema(seen: Survey) -> Finding:
    from rune.cli.doctor import Finding  # noqa: PLC0415

    found = f"version {seen.schema}, this Rune knows {seen.known_schema}"
    if seen.schema == 0:
        return Finding(
            "schema", "ok", "nothing there yet", "the first `rune serve` or `rune migrate` makes it"
        )
    if seen.schema < seen.known_schema:
        whom = "" if seen.may_migrate else " as the owner of the tables: this user may not"
        return Finding("schema", "bad", found, f"run `rune migrate`{whom}")
    if seen.schema > seen.known_schema:
        return Finding("schema", "bad", found, "it was made by a newer Rune: use that one")
    return Finding("schema", "ok", found)


def _state(seen: Survey) -> Finding:
    from rune.cli.doctor import Finding  # noqa: PLC0415

    if seen.state_trouble:
        return Finding("redis", "bad", seen.state_trouble, "is it there, and does RUNE_STATE lead to it?")
    found = f"{seen.redis} at {seen.state}, answers in {seen.state_ms:.2f} ms"
    if int(seen.redis.partition(".")[0]) < OLD_REDIS:
        return Finding("redis", "bad", found, f"Redis {OLD_REDIS} is the oldest that will do")
    if seen.state_ms > SLOW:
        return Finding("redis", "warn", found, "it is far away: each step waits for it several times")
    return Finding("redis", "ok", found)


def _kept(seen: Survey) -> Finding:
    from rune.cli.doctor import Finding  # noqa: PLC0415

    if seen.aof:
        return Finding("redis persistence", "ok", "append-only file")
    advice = (
        "nothing is lost without it, but after a restart all is read back from PostgreSQL: appendonly yes"
    )
    return Finding("redis persistence", "warn", "no append-only file", advice)


def _memory(seen: Survey) -> Finding:
    from rune.cli.doctor import Finding  # noqa: PLC0415

    limit = f"of {seen.memory_limit / 1024**2:,.0f} MiB" if seen.memory_limit else "without a limit"
    found = f"{seen.memory / 1024**2:,.1f} MiB {limit}, {seen.policy}"
    if seen.policy != "noeviction":
        return Finding("redis memory", "bad", found, "set maxmemory-policy to noeviction")
    if seen.memory_limit and seen.memory > FULL * seen.memory_limit:
        return Finding("redis memory", "warn", found, "give it more soon: nothing goes on without it")
    return Finding("redis memory", "ok", found)


def _workers(seen: Survey) -> Finding:
    from rune.cli.doctor import Finding  # noqa: PLC0415

    queues = sorted({queue for each in seen.workers for queue in each.queues})
    if not seen.workers:
        return Finding("workers", "warn", "none", "nothing runs until `rune serve worker` does")
    if "default" not in queues:
        advice = "nobody serves the queue `default`, where most nodes are"
        return Finding("workers", "warn", f"{len(seen.workers)}, of {', '.join(queues)}", advice)
    return Finding("workers", "ok", f"{len(seen.workers)}, of {', '.join(queues)}")


def _schedulers(seen: Survey) -> Finding:
    from rune.cli.doctor import Finding  # noqa: PLC0415

    if not seen.schedulers:
        advice = "no wait ends and nothing that was lost is sent again until `rune serve scheduler` runs"
        return Finding("schedulers", "warn", "none", advice)
    return Finding("schedulers", "ok", str(len(seen.schedulers)))


def _keys(seen: Survey) -> Finding:
    from rune.cli.doctor import Finding  # noqa: PLC0415

    if seen.keys_trouble:
        return Finding(
            "secret keys", "bad", seen.keys_trouble, "nodes that use credentials fail on this machine"
        )
    if not seen.keys:
        return Finding(
            "secret keys", "ok", "none", "the first `rune credentials add` makes one; share it with all"
        )
    return Finding("secret keys", "ok", f"{seen.keys} from {seen.keys_from}", "every machine needs the same")
