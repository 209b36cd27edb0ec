"""`rune doctor`: whether this machine and this place are fit to run executions.

What `rune doctor` asks beside whether a store is there: rights, clocks, the broker, and room on the disk.

What `rune doctor` looks at on a cluster: both stores, who takes part, and the keys of the credentials.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from rune.ports.inspection import ClusterSurvey, FileInspection
    from rune.settings import Settings

MIN_FREE_BYTES = 1024**3
CRITICAL_FREE_BYTES = 64 * 1024**2
SLOW_SYNC = 20.0  # ms
OLD_SQLITE = (3, 37)


class Finding(NamedTuple):
    """One line: how it is, and what to do about it."""

    check: str
    verdict: str  # ok, warn, bad
    found: str
    advice: str = ""


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    modules: Annotated[
        list[str] | None,
        typer.Option("--nodes", help="A Python module with custom nodes; may be given again."),
    ] = None,
) -> None:
    """Check Python, the stores and their place, and custom nodes. Exits 1 if something is bad.

    On a cluster also: who takes part, and the keys of the credentials.

    Example: rune doctor
    """
    findings = list(_findings(tuple(modules or ())))
    bad = any(each.verdict == "bad" for each in findings)
    if as_json:
        from rune.cli.output import print_json

        print_json({"status": "bad" if bad else "ok", "checks": [each._asdict() for each in findings]})
    else:
        from rune.cli.output import by_status, print_table

        print_table(
            ("", "check", "found", "what to do"),
            [[by_status(each.verdict), each.check, each.found, each.advice] for each in findings],
        )
    raise typer.Exit(1 if bad else 0)


def _findings(modules: tuple[str, ...]) -> Iterator[Finding]:
    from msgspec.structs import replace

    from rune.errors import RuneError
    from rune.settings import load_settings

    yield _python()
    try:
        settings = load_settings()
    except RuneError as error:
        yield Finding("settings", "bad", error.message, "mend the variable, or rune.toml")
        return
    if settings.url:
        yield Finding("server", "ok", f"commands ask {settings.url}; what follows is about this machine")
        settings = replace(settings, url="")
    yield Finding("home", "ok", settings.home)
    yield from _cluster(settings) if settings.clustered else _embedded(settings)
    yield _calls(settings)
    yield from _mails(settings)
    yield from _telling(settings)
    yield from _modules((*settings.nodes, *modules))


def _calls(settings: Settings) -> Finding:
    """Whom nodes may call from here."""
    from rune.errors import RuneError
    from rune.nodes.resources import Resources

    try:
        Resources(http_policy=settings.http_policy, http_allow=settings.http_allow)
    except RuneError as error:
        return Finding("http policy", "bad", error.message, "nothing runs until it is mended")
    allowed = f"; in any case {', '.join(settings.http_allow)}" if settings.http_allow else ""
    match settings.http_policy:
        case "public_only":
            return Finding("http policy", "ok", f"public_only: public addresses{allowed}")
        case "allow":
            return Finding("http policy", "ok", f"allow: nobody{allowed or ', and RUNE_HTTP_ALLOW is empty'}")
        case _:
            advice = "anybody who writes a workflow can reach your private network: use public_only"
            return Finding("http policy", "warn", "open: every address, private ones too", advice)


def _mails(settings: Settings) -> Iterator[Finding]:
    """Where mails of nodes without a credential go, if that was set."""
    from rune.errors import RuneError

    if not settings.smtp_url:
        return
    from rune.nodes.io.smtp import server

    try:
        found = server(settings.smtp_url)
        yield Finding("mail server", "ok", f"{found.host}:{found.port}, {found.security}")
    except RuneError as error:
        yield Finding("mail server", "bad", error.message, "`smtp` nodes without a credential fail")


def _seals(settings: Settings) -> Finding:
    """Whether credentials can be opened here."""
    from rune.bootstrap.components import keys_found

    found = keys_found(settings)
    if found.get("keys_trouble"):
        return Finding("secret keys", "bad", found["keys_trouble"], "nodes that use credentials fail")
    if not found.get("keys"):
        return Finding("secret keys", "ok", "none", "the first `rune credentials add` makes one")
    return Finding("secret keys", "ok", f"{found['keys']} from {found['keys_from']}")


def _telling(settings: Settings) -> Iterator[Finding]:
    """Whether what is measured and traced can be told."""
    import importlib.util

    advice = "install `rune-engine[telemetry]`"
    there = importlib.util.find_spec("prometheus_client") is not None
    yield Finding(
        "metrics",
        "ok" if there else "warn",
        "/metrics" if there else "no prometheus-client",
        "" if there else advice,
    )
    if not settings.collector:
        yield Finding("traces", "ok", "off")
    elif importlib.util.find_spec("opentelemetry") is None:
        yield Finding(
            "traces", "bad", f"to {settings.collector}, but nothing is there that sends them", advice
        )
    else:
        yield Finding("traces", "ok", f"to {settings.collector}")


def _cluster(settings: Settings) -> Iterator[Finding]:
    import asyncio

    from rune.bootstrap import survey_cluster

    yield from findings(asyncio.run(survey_cluster(settings)))


def _embedded(settings: Settings) -> Iterator[Finding]:
    from rune.bootstrap import inspect_file
    from rune.errors import RuneError

    try:
        seen = inspect_file(settings)
    except RuneError as error:
        yield Finding("settings", "bad", error.message, "mend the variable, or rune.toml")
        return
    yield _sqlite(seen)
    yield _place(seen)
    yield _room(seen)
    yield _file(seen)
    yield _lock(seen)
    yield _durability(settings, seen)
    yield _seals(settings)


def _python() -> Finding:
    import platform

    found = f"{platform.python_implementation()} {platform.python_version()}"
    if platform.python_implementation() != "CPython":
        return Finding("python", "warn", found, "only CPython is tested")
    return Finding("python", "ok", found)


def _sqlite(seen: FileInspection) -> Finding:
    version = tuple(int(part) for part in seen.sqlite.split(".")[:2])
    if version < OLD_SQLITE:
        return Finding(
            "sqlite", "warn", seen.sqlite, "a Python built with SQLite 3.37 or newer is better tested"
        )
    return Finding("sqlite", "ok", seen.sqlite)


def _place(seen: FileInspection) -> Finding:
    kind = seen.file_system or "unknown"
    if seen.network:
        return Finding(
            "file system", "bad", kind, "set RUNE_HOME to a local disk: locks cannot be trusted here"
        )
    if not seen.writable:
        return Finding(
            "file system", "bad", f"{kind}, not writable", "allow writing, or set RUNE_HOME elsewhere"
        )
    if kind == "tmpfs":
        return Finding(
            "file system", "warn", kind, "this is memory: executions are lost when the machine stops"
        )
    return Finding("file system", "ok", kind)


def _room(seen: FileInspection) -> Finding:
    found = f"{seen.free_bytes / 1024**3:,.1f} GiB free"
    if seen.free_bytes < CRITICAL_FREE_BYTES:
        return Finding("disk", "bad", found, "make room: nothing is accepted without it")
    if seen.free_bytes < MIN_FREE_BYTES:
        return Finding("disk", "warn", found, "make room soon")
    return Finding("disk", "ok", found)


def _file(seen: FileInspection) -> Finding:
    if not seen.exists:
        return Finding("file", "ok", f"{seen.database}: not there yet", "`rune run` makes it")
    if seen.damage:
        advice = "stop Rune, keep a copy of the file, and restore the newest sound one"
        return Finding("file", "bad", f"{seen.database}: {seen.damage}", advice)
    schema = seen.schema or 0
    if schema > seen.known_schema:
        advice = "it was written by a newer Rune: use that one"
        return Finding(
            "file", "bad", f"{seen.database}: schema version {schema}, known {seen.known_schema}", advice
        )
    size = f"{seen.file_bytes / 1024**2:,.1f} MiB"
    found = f"{seen.database}: schema version {schema}, {size}, {seen.running:,} executions not ended"
    return Finding(
        "file", "ok", found, "" if schema == seen.known_schema else "the next `rune run` brings it up to date"
    )


def _lock(seen: FileInspection) -> Finding:
    if seen.owned:
        return Finding("owner", "ok", f"process {seen.owner or 'unknown'}")
    if seen.running:
        return Finding("owner", "warn", "none", "executions wait for the next `rune run`")
    return Finding("owner", "ok", "none")


def _durability(settings: Settings, seen: FileInspection) -> Finding:
    speed = "" if seen.sync_ms is None else f", a small durable write takes {seen.sync_ms:.2f} ms"
    found = f"{settings.durability}{speed}"
    if settings.durability == "relaxed":
        return Finding(
            "durability",
            "warn",
            found,
            "a power cut may lose the last moments; RUNE_DURABILITY=full does not",
        )
    if seen.sync_ms is not None and seen.sync_ms > SLOW_SYNC:
        return Finding("durability", "warn", found, "the disk is slow: each lone step waits this long")
    return Finding("durability", "ok", found)


def _modules(names: tuple[str, ...]) -> Iterator[Finding]:
    from rune.errors import RuneError
    from rune.nodes.registry import installed, load_module

    try:
        found = installed()
        yield Finding("installed nodes", "ok", ", ".join(kind.type.name for kind in found) or "none")
    except RuneError as error:
        yield Finding("installed nodes", "bad", error.message, "mend or remove the distribution")
    for name in names:
        try:
            kinds = load_module(name)
            yield Finding(f"nodes of {name}", "ok", ", ".join(kind.type.name for kind in kinds))
        except RuneError as error:
            yield Finding(
                f"nodes of {name}", "bad", error.message, "mend the module, or take it out of RUNE_NODES"
            )


SKEW, FAR_OFF = 1.0, 5.0  # s
OLD_RABBITMQ = (3, 10)
MAX_LISTED = 5  # that are named of what is missing


def journal_rights(seen: ClusterSurvey) -> Iterator[Finding]:
    """As what the user of PostgreSQL may take part."""

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


def state_rights(seen: ClusterSurvey) -> Finding:
    """Whether the user of Redis may run what is needed."""

    if seen.state_lacks:
        advice = "allow them in the ACL of this user, on keys and channels that begin with RUNE_PREFIX"
        return Finding("redis rights", "bad", f"not allowed: {_some(seen.state_lacks)}", advice)
    return Finding("redis rights", "ok", "every command that is needed")


def clock(check: str, skew: float) -> Finding:
    """How far a store's clock is from this machine's."""

    found = f"{abs(skew):.3f} s {'ahead of' if skew > 0 else 'behind'} this machine"
    if abs(skew) < SKEW:
        return Finding(check, "ok", found)
    advice = "let both follow the same time (NTP): times in histories and schedules are off by this"
    return Finding(check, "bad" if abs(skew) >= FAR_OFF else "warn", found, advice)


def broker(seen: ClusterSurvey) -> Iterator[Finding]:
    """RabbitMQ, where there is one."""

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


def rooms(seen: ClusterSurvey) -> Iterator[Finding]:
    """What is free where this machine writes."""

    for folder, free in seen.rooms:
        verdict = "bad" if free < CRITICAL_FREE_BYTES else "warn" if free < MIN_FREE_BYTES else "ok"
        advice = {"bad": "make room: nothing can be written", "warn": "make room soon", "ok": ""}[verdict]
        yield Finding("disk", verdict, f"{free / 1024**3:,.1f} GiB free for {folder}", advice)


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return f"{', '.join(names[:MAX_LISTED])}{more}"


OLD_POSTGRES, OLD_REDIS = 14, 7
SLOW = 20.0  # ms for a question that asks nothing
FULL = 0.8  # of the memory that Redis may use


def findings(seen: ClusterSurvey) -> Iterator[Finding]:
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


def _journal(seen: ClusterSurvey) -> Finding:

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


def _schema(seen: ClusterSurvey) -> Finding:

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


def _state(seen: ClusterSurvey) -> Finding:

    if seen.state_trouble:
        return Finding("redis", "bad", seen.state_trouble, "is it there, and does RUNE_STATE lead to it?")
    found = f"{seen.redis} at {seen.state}, answers in {seen.state_ms:.2f} ms"
    if int(seen.redis.partition(".")[0]) < OLD_REDIS:
        return Finding("redis", "bad", found, f"Redis {OLD_REDIS} is the oldest that will do")
    if seen.state_ms > SLOW:
        return Finding("redis", "warn", found, "it is far away: each step waits for it several times")
    return Finding("redis", "ok", found)


def _kept(seen: ClusterSurvey) -> Finding:

    if seen.aof:
        return Finding("redis persistence", "ok", "append-only file")
    advice = (
        "nothing is lost without it, but after a restart all is read back from PostgreSQL: appendonly yes"
    )
    return Finding("redis persistence", "warn", "no append-only file", advice)


def _memory(seen: ClusterSurvey) -> Finding:

    limit = f"of {seen.memory_limit / 1024**2:,.0f} MiB" if seen.memory_limit else "without a limit"
    found = f"{seen.memory / 1024**2:,.1f} MiB {limit}, {seen.policy}"
    if seen.policy != "noeviction":
        return Finding("redis memory", "bad", found, "set maxmemory-policy to noeviction")
    if seen.memory_limit and seen.memory > FULL * seen.memory_limit:
        return Finding("redis memory", "warn", found, "give it more soon: nothing goes on without it")
    return Finding("redis memory", "ok", found)


def _workers(seen: ClusterSurvey) -> Finding:

    queues = sorted({queue for each in seen.workers for queue in each.queues})
    if not seen.workers:
        return Finding("workers", "warn", "none", "nothing runs until `rune serve worker` does")
    if "default" not in queues:
        advice = "nobody serves the queue `default`, where most nodes are"
        return Finding("workers", "warn", f"{len(seen.workers)}, of {', '.join(queues)}", advice)
    return Finding("workers", "ok", f"{len(seen.workers)}, of {', '.join(queues)}")


def _schedulers(seen: ClusterSurvey) -> Finding:

    if not seen.schedulers:
        advice = "no wait ends and nothing that was lost is sent again until `rune serve scheduler` runs"
        return Finding("schedulers", "warn", "none", advice)
    return Finding("schedulers", "ok", str(len(seen.schedulers)))


def _keys(seen: ClusterSurvey) -> Finding:

    if seen.keys_trouble:
        return Finding(
            "secret keys", "bad", seen.keys_trouble, "nodes that use credentials fail on this machine"
        )
    if not seen.keys:
        return Finding(
            "secret keys", "ok", "none", "the first `rune credentials add` makes one; share it with all"
        )
    return Finding("secret keys", "ok", f"{seen.keys} from {seen.keys_from}", "every machine needs the same")
