"""Components that every backend needs: the engine, tracing, encryption keys, and the error for a missing package."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

import rune
from rune.adapters.encryption import KeySource, new_key
from rune.errors import RuneError
from rune.nodes.base import Resources
from rune.nodes.registry import Registry
from rune.ports.access import ApiKeyStore, AuditLogStore, StartLimitStore
from rune.ports.clock import SystemClock
from rune.ports.credentials import CredentialGrants, CredentialStore
from rune.ports.processes import ProcessInfo
from rune.ports.workflows import TriggerStore
from rune.runtime.backend import Backend
from rune.runtime.engine import Engine
from rune.runtime.execution_data import ExecutionDataCache
from rune.runtime.plan_cache import PlanCache
from rune.runtime.services.audit_log import AuditLog
from rune.runtime.services.credentials import CredentialService
from rune.runtime.state_wrapper import ExecutionObserver
from rune.settings import Settings
from rune.telemetry.counters import Counters, Instrumentation
from rune.telemetry.tracing import Tracer

EXTRAS = {
    "asyncpg": "cluster",
    "hiredis": "cluster",
    "pamqp": "cluster",
    "obstore": "cluster",
}
"""Top-level module -> the extra of this package that installs it."""


class MissingExtraError(RuneError):
    """An operation needs a package that is not installed."""

    code = "MISSING_EXTRA"


@contextmanager
def optional_imports(purpose: str) -> Iterator[None]:
    """Raise MissingExtraError if an import in the block fails because an extra is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise MissingExtraError(
            f"{purpose} needs `{package}`: install `rune-engine[{EXTRAS[package]}]`"
        ) from None


class TracingUnavailableError(RuneError):
    """Tracing is configured, but its exporter is not installed."""

    code = "NOT_TRACED"


def tracer(settings: Settings) -> Tracer | None:
    """Return the configured tracer; None if tracing is off."""
    if not settings.collector:
        return None
    try:
        from rune.telemetry.otlp import OtlpExporter  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise TracingUnavailableError(
            f"tracing to {settings.collector} needs `{error.name}`: install `rune-engine[telemetry]`,"
            " or set RUNE_TRACES=off"
        ) from None
    about = {"service.version": rune.__version__, "host.name": platform.node()}
    return Tracer(OtlpExporter(settings.collector, about), settings.trace_share)


def new_engine(
    settings: Settings,
    backend: Backend,
    plans: PlanCache,
    registry: Registry,
    observer: ExecutionObserver | None = None,
    member: ProcessInfo | None = None,
    data_cache: ExecutionDataCache | None = None,
    counters: Counters | None = None,
) -> Engine:
    name = member.name if member is not None else f"{os.getpid()}"
    resources = Resources(
        http_policy=settings.http_policy,
        http_allow=settings.http_allow,
        http_per_host=settings.http_per_host,
        smtp_url=settings.smtp_url,
        credentials=backend.credentials,
    )
    return Engine(
        backend,
        plans,
        registry,
        in_place=settings.in_place,
        sticky=settings.keeps_successors,
        chunk=settings.chunk,
        slots=settings.slots,
        expression_ms=settings.expression_ms,
        resources=resources,
        on_progress=observer.progressed if observer is not None else None,
        on_line=observer.logged if observer is not None else None,
        rules=settings.retention,
        member=member,
        instrumentation=Instrumentation(name, counters, tracer(settings)),
        max_waiting=settings.max_waiting,
        data_cache=data_cache,
        quarantine=settings.quarantine,
        public_url=settings.public_url,
    )


class Access(msgspec.Struct, frozen=True):
    """The stores of API keys, grants, the audit log, limits and triggers."""

    keys: ApiKeyStore
    grants: CredentialGrants
    log: AuditLogStore
    limits: StartLimitStore
    triggers: TriggerStore


def credential_service(
    credentials: CredentialStore, grants: CredentialGrants, log: AuditLogStore
) -> CredentialService:
    """Return the service over stores that were opened for reading."""
    clock = SystemClock()
    return CredentialService(credentials, grants, clock, AuditLog(log, clock))


def keys(settings: Settings) -> KeySource:
    """Return the source of the encryption keys of credentials."""
    return KeySource(settings.secret_key, settings.key_file)


def keys_found(settings: Settings) -> dict[str, Any]:
    """Return the number of encryption keys and their location, or why they cannot be used."""
    source = keys(settings)
    try:
        return {"keys": len(source.ring().names), "keys_from": source.where}
    except RuneError as error:
        missing = error.code == "SECRET_KEY_MISSING" and not source.file.exists()
        return {"keys_from": source.where, "keys_trouble": "" if missing else error.message}


def add_key(settings: Settings) -> tuple[str, str]:
    """Add an encryption key, which is used from now on; return its name and location."""
    source = keys(settings)
    return source.add(), source.where


def fresh_key() -> str:
    """Return a new encryption key without storing it."""
    return new_key()
