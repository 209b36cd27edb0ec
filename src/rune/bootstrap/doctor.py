"""The checks of `rune doctor` and `GET /doctor`: the installation, the stores and their permissions, the clocks, the
disks and custom nodes. Nothing is changed."""

from __future__ import annotations

import asyncio
import importlib.util
import platform
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from rune.bootstrap import check_home, inspect_file, survey_cluster
from rune.bootstrap.components import MissingExtraError, keys_found
from rune.bootstrap.interpreter import describe, is_this_optimised
from rune.errors import RuneError
from rune.nodes.base import Resources, RunnableType
from rune.nodes.io.smtp import server
from rune.nodes.registry import installed, load_module
from rune.ports.inspection import ClusterSurvey, FileInspection, Finding, Verdict
from rune.ports.processes import served_queues
from rune.settings import Settings, SettingsError

MIN_FREE_BYTES = 1024**3
CRITICAL_FREE_BYTES = 64 * 1024**2
SLOW_SYNC_MS = 20.0
SLOW_RESPONSE_MS = 20.0
WARN_SKEW_S, BAD_SKEW_S = 1.0, 5.0
MAX_MEMORY_SHARE = 0.8  # of the memory limit of Redis
MAX_NAMES = 5  # listed of the missing permissions
MIN_SQLITE = (3, 37)
MIN_RABBITMQ = (3, 10)
MIN_POSTGRES, MIN_REDIS = 14, 7

LoadModule = Callable[[str], Sequence[RunnableType]]
"""Imports a module and returns the node types in it."""


async def check_installation(
    settings: Settings, modules: Sequence[str] = (), load: LoadModule = load_module
) -> list[Finding]:
    """Run all checks. `modules` are checked besides those of the settings."""
    found = [_python()]
    if settings.url:
        about = f"commands use {settings.url}; the checks below are about this machine"
        found.append(Finding("server", "ok", about))
        settings = replace(settings, url="")
    found.append(_home(settings))
    if settings.clustered:
        found += await _cluster(settings)
    else:
        found += await asyncio.to_thread(lambda: list(_embedded(settings)))
    found.append(_http_policy(settings))
    found += _mail_server(settings)
    found += _telemetry(settings)
    found += _modules((*settings.nodes, *modules), load)
    return found


def _home(settings: Settings) -> Finding:
    try:
        check_home(settings)
    except SettingsError as error:
        verdict: Verdict = "bad" if settings.database.parent.exists() else "warn"
        return Finding("home", verdict, error.message, "check the setting")
    return Finding("home", "ok", settings.home)


def settings_finding(error: RuneError) -> Finding:
    """Return the finding about settings that cannot be read."""
    return Finding("settings", "bad", error.message, "fix the environment variable or rune.toml")


def _http_policy(settings: Settings) -> Finding:
    """Report which addresses HTTP nodes may call."""
    try:
        Resources(http_policy=settings.http_policy, http_allow=settings.http_allow)
    except RuneError as error:
        return Finding("http policy", "bad", error.message, "nothing runs until it is fixed")
    allowed = f"; always allowed: {', '.join(settings.http_allow)}" if settings.http_allow else ""
    match settings.http_policy:
        case "public_only":
            return Finding("http policy", "ok", f"public_only: public addresses{allowed}")
        case "allow":
            return Finding("http policy", "ok", f"allow: no address{allowed or '; RUNE_HTTP_ALLOW is empty'}")
        case _:
            advice = "every author of a workflow can reach your private network: use public_only"
            return Finding("http policy", "warn", "open: every address, including private ones", advice)


def _mail_server(settings: Settings) -> Iterator[Finding]:
    """Check the mail server of `smtp` nodes without a credential, if one is configured."""
    if not settings.smtp_url:
        return

    try:
        found = server(settings.smtp_url)
        yield Finding("mail server", "ok", f"{found.host}:{found.port}, {found.security}")
    except RuneError as error:
        yield Finding("mail server", "bad", error.message, "`smtp` nodes without a credential fail")


def _local_keys(settings: Settings) -> Finding:
    """Check whether credentials can be decrypted."""
    found = keys_found(settings)
    if found.get("keys_trouble"):
        return Finding("secret keys", "bad", found["keys_trouble"], "nodes that use credentials fail")
    if not found.get("keys"):
        return Finding("secret keys", "ok", "none", "the first `rune credentials add` creates one")
    return Finding("secret keys", "ok", f"{found['keys']} from {found['keys_from']}")


def _telemetry(settings: Settings) -> Iterator[Finding]:
    """Check whether metrics and traces can be exported."""
    advice = "install `rune-engine[telemetry]`"
    installed = importlib.util.find_spec("prometheus_client") is not None
    yield Finding(
        "metrics",
        "ok" if installed else "warn",
        "/metrics" if installed else "prometheus-client is not installed",
        "" if installed else advice,
    )
    if not settings.collector:
        yield Finding("traces", "ok", "off")
    elif importlib.util.find_spec("opentelemetry") is None:
        yield Finding("traces", "bad", f"to {settings.collector}, but the exporter is not installed", advice)
    else:
        yield Finding("traces", "ok", f"to {settings.collector}")


async def _cluster(settings: Settings) -> list[Finding]:
    try:
        found = await survey_cluster(settings)
    except MissingExtraError as error:
        return [Finding("cluster", "bad", error.message, "no process of the cluster can start here")]
    return list(cluster_findings(found))


def _embedded(settings: Settings) -> Iterator[Finding]:
    try:
        seen = inspect_file(settings)
    except RuneError as error:
        yield settings_finding(error)
        return
    yield _sqlite(seen)
    yield _file_system(seen)
    yield _disk(seen)
    yield _file(seen)
    yield _owner(seen)
    yield from _quarantine(seen.quarantined)
    yield _durability(settings, seen)
    yield _local_keys(settings)


def _quarantine(executions: tuple[str, ...]) -> Iterator[Finding]:
    if executions:
        count = len(executions)
        yield Finding(
            "quarantine",
            "warn",
            f"{count} execution{' is' if count == 1 else 's are'} paused: {_first_names(executions)}",
            "they blocked the event loop or were named with --quarantine; `rune resume ID` continues one",
        )


def _python() -> Finding:
    found = describe()
    if platform.python_implementation() != "CPython":
        return Finding("python", "warn", found, "only CPython is tested")
    advice = "" if is_this_optimised() else "a build with it needs 13 to 15 % less CPU time"
    return Finding("python", "ok", found, advice)


def _sqlite(seen: FileInspection) -> Finding:
    version = tuple(int(part) for part in seen.sqlite.split(".")[:2])
    if version < MIN_SQLITE:
        return Finding(
            "sqlite", "warn", seen.sqlite, "use a Python with SQLite 3.37 or newer, which is better tested"
        )
    return Finding("sqlite", "ok", seen.sqlite)


def _file_system(seen: FileInspection) -> Finding:
    kind = seen.file_system or "unknown"
    if seen.network:
        return Finding(
            "file system", "bad", kind, "set RUNE_HOME to a local disk: file locks are not reliable here"
        )
    if not seen.writable:
        return Finding(
            "file system",
            "bad",
            f"{kind}, not writable",
            "make it writable, or set RUNE_HOME to another folder",
        )
    if kind == "tmpfs":
        return Finding(
            "file system", "warn", kind, "this is memory: executions are lost when the machine stops"
        )
    return Finding("file system", "ok", kind)


def _disk(seen: FileInspection) -> Finding:
    found = f"{seen.free_bytes / 1024**3:,.1f} GiB free"
    if seen.free_bytes < CRITICAL_FREE_BYTES:
        return Finding("disk", "bad", found, "free disk space: no execution can start without it")
    if seen.free_bytes < MIN_FREE_BYTES:
        return Finding("disk", "warn", found, "free disk space soon")
    return Finding("disk", "ok", found)


def _file(seen: FileInspection) -> Finding:
    if not seen.exists:
        return Finding("file", "ok", f"{seen.database}: does not exist yet", "`rune run` creates it")
    if seen.damage:
        advice = "stop Rune, keep a copy of the file, and restore the newest intact backup"
        return Finding("file", "bad", f"{seen.database}: {seen.damage}", advice)
    schema = seen.schema or 0
    if schema > seen.known_schema:
        advice = "it was written by a newer version of Rune: use that version"
        return Finding(
            "file",
            "bad",
            f"{seen.database}: schema version {schema}, this version knows {seen.known_schema}",
            advice,
        )
    size = f"{seen.file_bytes / 1024**2:,.1f} MiB"
    found = f"{seen.database}: schema version {schema}, {size}, {seen.running:,} executions not ended"
    return Finding(
        "file", "ok", found, "" if schema == seen.known_schema else "the next `rune run` upgrades it"
    )


def _owner(seen: FileInspection) -> Finding:
    if seen.owned:
        return Finding("owner", "ok", f"process {seen.owner or 'unknown'}")
    if seen.running:
        return Finding("owner", "warn", "none", "unfinished executions resume with the next `rune run`")
    return Finding("owner", "ok", "none")


def _durability(settings: Settings, seen: FileInspection) -> Finding:
    speed = "" if seen.sync_ms is None else f", a small durable write takes {seen.sync_ms:.2f} ms"
    found = f"{settings.durability}{speed}"
    if settings.durability == "relaxed":
        return Finding(
            "durability",
            "warn",
            found,
            "a power failure may lose the last commits; RUNE_DURABILITY=full prevents that",
        )
    if seen.sync_ms is not None and seen.sync_ms > SLOW_SYNC_MS:
        return Finding("durability", "warn", found, "the disk is slow: each single step waits this long")
    return Finding("durability", "ok", found)


def _modules(names: Sequence[str], load: LoadModule) -> Iterator[Finding]:
    try:
        found = installed()
        yield Finding("installed nodes", "ok", ", ".join(kind.type.name for kind in found) or "none")
    except RuneError as error:
        yield Finding("installed nodes", "bad", error.message, "fix or uninstall the distribution")
    for name in names:
        try:
            yield Finding(f"nodes of {name}", "ok", ", ".join(kind.type.name for kind in load(name)))
        except RuneError as error:
            yield Finding(
                f"nodes of {name}", "bad", error.message, "fix the module, or remove it from RUNE_NODES"
            )


def journal_rights(seen: ClusterSurvey) -> Iterator[Finding]:
    """Report which roles the PostgreSQL user has the permissions for."""
    if not seen.journal_user:
        return
    migrates = "may change the schema" if seen.may_migrate else "may not change the schema"
    if not seen.journal_roles:
        found = f"{seen.journal_user} has no permission for {_first_names(seen.journal_lacks)}"
        yield Finding(
            "postgresql rights", "bad", found, "run `rune migrate --roles` as the owner of the tables"
        )
        return
    found = f"{seen.journal_user} can run as {', '.join(seen.journal_roles)}; {migrates}"
    advice = "" if seen.may_migrate else "run `rune migrate` as the owner of the tables"
    yield Finding("postgresql rights", "ok", found, advice)


def state_rights(seen: ClusterSurvey) -> Finding:
    """Check whether the Redis user may run all required commands."""
    if seen.state_owner:
        return Finding(
            "redis rights", "ok", "may load functions and reads no key: the user of `rune migrate`"
        )
    if seen.state_lacks:
        advice = "allow them in the ACL of this user, on keys and channels that start with RUNE_PREFIX"
        return Finding("redis rights", "bad", f"not allowed: {_first_names(seen.state_lacks)}", advice)
    return Finding("redis rights", "ok", "all required commands are allowed")


def clock(check: str, skew: float) -> Finding:
    """Compare the clock of a store with the clock of this machine."""
    found = f"{abs(skew):.3f} s {'ahead of' if skew > 0 else 'behind'} this machine"
    if abs(skew) < WARN_SKEW_S:
        return Finding(check, "ok", found)
    advice = "synchronise both with NTP: times in histories and schedules are wrong by this much"
    return Finding(check, "bad" if abs(skew) >= BAD_SKEW_S else "warn", found, advice)


def broker(seen: ClusterSurvey) -> Iterator[Finding]:
    """Check RabbitMQ, if it is configured."""
    if not seen.queue:
        return
    if seen.queue_trouble:
        yield Finding("rabbitmq", "bad", seen.queue_trouble, "is it running, and is RUNE_QUEUE correct?")
        return
    found = f"{seen.rabbitmq} at {seen.queue}"
    old = tuple(int(part) for part in seen.rabbitmq.split(".")[:2] if part.isdigit()) < MIN_RABBITMQ
    yield Finding(
        "rabbitmq",
        "warn" if old else "ok",
        found,
        "use 3.10 or newer: older versions are not tested" if old else "",
    )
    if seen.queue_differs:
        advice = "keep the RUNE_QUEUE_KIND it was declared with, delete the queue, or use another RUNE_QUEUE_PREFIX"
        found = f"`{seen.queue_differs}` was declared differently; processes with these settings cannot start"
        yield Finding("rabbitmq queues", "bad", found, advice)
    if seen.queue_lacks:
        advice = "grant this user the permissions that `rune topology` lists"
        found = f"as {seen.queue_role}, cannot {_first_names(seen.queue_lacks)}"
        yield Finding("rabbitmq rights", "bad", found, advice)
    elif seen.queue_missing:
        advice = "the first `rune serve` creates them, or import the output of `rune topology --definitions`"
        yield Finding(
            "rabbitmq rights", "ok", f"{seen.queue_missing} queues or exchanges do not exist yet", advice
        )
    else:
        subject = "the API and the command line need" if seen.queue_role == "master" else "a worker needs"
        yield Finding("rabbitmq rights", "ok", f"all permissions that {subject}")


def free_space(seen: ClusterSurvey) -> Iterator[Finding]:
    """Check the free disk space of the folders that this machine writes to."""
    for folder, free in seen.free_space:
        verdict: Verdict = "ok"
        if free < MIN_FREE_BYTES:
            verdict = "bad" if free < CRITICAL_FREE_BYTES else "warn"
        advice = {"bad": "free disk space: nothing can be written", "warn": "free disk space soon", "ok": ""}[
            verdict
        ]
        yield Finding("disk", verdict, f"{free / 1024**3:,.1f} GiB free for {folder}", advice)


def _first_names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"{', '.join(names[:MAX_NAMES])}{more}"


def cluster_findings(seen: ClusterSurvey) -> Iterator[Finding]:
    """Yield the checks of a cluster."""
    yield _journal(seen)
    if not seen.journal_trouble:
        yield _schema(seen)
        yield from journal_rights(seen)
        yield clock("postgresql clock", seen.journal_skew)
        yield from _quarantine(seen.quarantined)
    if seen.stores_differ:
        advice = "set RUNE_JOURNAL, RUNE_STATE, RUNE_PREFIX and RUNE_PARTITIONS as the other processes of the cluster"
        yield Finding("stores", "bad", seen.stores_differ, advice)
    else:
        yield _state(seen)
    if seen.redis:
        yield _persistence(seen)
        yield _memory(seen)
        yield state_rights(seen)
    if seen.redis and not seen.state_owner:
        yield clock("redis clock", seen.state_skew)
        yield _workers(seen)
        yield _schedulers(seen)
        yield from _queues(seen)
    yield from broker(seen)
    yield from free_space(seen)
    yield _cluster_keys(seen)


def _journal(seen: ClusterSurvey) -> Finding:
    if seen.journal_trouble:
        return Finding(
            "postgresql", "bad", seen.journal_trouble, "is it running, and is RUNE_JOURNAL correct?"
        )
    found = f"{seen.postgres} at {seen.journal}, responds in {seen.journal_ms:.2f} ms"
    if int(seen.postgres.partition(".")[0]) < MIN_POSTGRES:
        return Finding("postgresql", "bad", found, f"upgrade to PostgreSQL {MIN_POSTGRES} or newer")
    if not seen.fsync:
        return Finding("postgresql", "bad", found, "fsync is off: a power failure loses acknowledged data")
    if seen.journal_ms > SLOW_RESPONSE_MS:
        return Finding(
            "postgresql", "warn", found, "the connection is slow: each single step waits for it twice"
        )
    return Finding("postgresql", "ok", found)


def _schema(seen: ClusterSurvey) -> Finding:
    found = f"version {seen.schema}, this version of Rune needs {seen.known_schema}"
    if seen.schema == 0:
        return Finding(
            "schema", "ok", "does not exist yet", "the first `rune serve` or `rune migrate` creates it"
        )
    if seen.schema < seen.known_schema:
        user = "" if seen.may_migrate else " as the owner of the tables: this user may not"
        return Finding("schema", "bad", found, f"run `rune migrate`{user}")
    if seen.schema > seen.known_schema:
        return Finding("schema", "bad", found, "it was created by a newer version of Rune: use that version")
    return Finding("schema", "ok", found)


def _state(seen: ClusterSurvey) -> Finding:
    if seen.state_trouble:
        advice = "is it running, and is RUNE_STATE correct?"
        if seen.state_trouble.startswith("NOPERM"):
            advice = (
                "allow it in the ACL of this user: `rune topology --redis-acl` lists what each user needs"
            )
        return Finding("redis", "bad", seen.state_trouble, advice)
    found = f"{seen.redis} at {seen.state}, responds in {seen.state_ms:.2f} ms"
    if int(seen.redis.partition(".")[0]) < MIN_REDIS:
        return Finding("redis", "bad", found, f"upgrade to Redis {MIN_REDIS} or newer")
    if seen.state_ms > SLOW_RESPONSE_MS:
        return Finding("redis", "warn", found, "the connection is slow: each step waits for it several times")
    return Finding("redis", "ok", found)


def _persistence(seen: ClusterSurvey) -> Finding:
    if seen.aof:
        return Finding("redis persistence", "ok", "append-only file")
    advice = (
        "set appendonly yes: without it nothing is lost, but a restart reloads everything from PostgreSQL"
    )
    return Finding("redis persistence", "warn", "no append-only file", advice)


def _memory(seen: ClusterSurvey) -> Finding:
    limit = f"of {seen.memory_limit / 1024**2:,.0f} MiB" if seen.memory_limit else "without a limit"
    found = f"{seen.memory / 1024**2:,.1f} MiB {limit}, {seen.policy}"
    if seen.policy != "noeviction":
        return Finding("redis memory", "bad", found, "set maxmemory-policy to noeviction")
    if seen.memory_limit and seen.memory > MAX_MEMORY_SHARE * seen.memory_limit:
        return Finding(
            "redis memory", "warn", found, "give Redis more memory soon: executions stop without it"
        )
    return Finding("redis memory", "ok", found)


def _workers(seen: ClusterSurvey) -> Finding:
    queues = sorted({queue for each in seen.workers for queue in each.queues})
    if not seen.workers:
        return Finding("workers", "warn", "none", "start `rune serve worker`: without it no node runs")
    if "default" not in queues:
        advice = "start a worker for the queue `default`, which most nodes use"
        return Finding("workers", "warn", f"{len(seen.workers)}, of {', '.join(queues)}", advice)
    return Finding("workers", "ok", f"{len(seen.workers)}, of {', '.join(queues)}")


def _queues(seen: ClusterSurvey) -> Iterator[Finding]:
    """Report each queue that a workflow names and no worker receives from."""
    served = served_queues(seen.workers)
    for queue, workflow in seen.named_queues:
        if queue not in served:
            advice = f"start `rune serve worker --queues {queue}`, or correct `queue` of the node"
            found = f"no worker serves the queue `{queue}`, which workflow `{workflow}` names"
            yield Finding("queues", "warn", found, advice)


def _schedulers(seen: ClusterSurvey) -> Finding:
    if not seen.schedulers:
        advice = "start `rune serve scheduler`: without it no wait ends and lost work is not resent"
        return Finding("schedulers", "warn", "none", advice)
    return Finding("schedulers", "ok", str(len(seen.schedulers)))


def _cluster_keys(seen: ClusterSurvey) -> Finding:
    if seen.keys_trouble:
        return Finding(
            "secret keys", "bad", seen.keys_trouble, "nodes that use credentials fail on this machine"
        )
    if not seen.keys:
        return Finding(
            "secret keys",
            "ok",
            "none",
            "the first `rune credentials add` creates one; copy it to every machine",
        )
    return Finding(
        "secret keys", "ok", f"{seen.keys} from {seen.keys_from}", "every machine needs the same keys"
    )
