"""Tracing: where spans go, if anywhere.

What every backend is put together with.
"""

from __future__ import annotations

import platform
from typing import Any

import msgspec

import rune
from rune.adapters.encryption import KeySource, new_key
from rune.errors import RuneError
from rune.nodes.registry import Registry
from rune.nodes.resources import Resources
from rune.ports.access import ApiKeyStore, AuditLogStore, StartLimitStore
from rune.ports.credentials import CredentialGrants
from rune.ports.processes import ProcessInfo
from rune.runtime.backend import Backend
from rune.runtime.engine import Engine
from rune.runtime.instrumentation import Instrumentation
from rune.runtime.plan_cache import PlanCache
from rune.runtime.state_wrapper import ExecutionObserver
from rune.runtime.values import ExecutionDataCache
from rune.settings import Settings
from rune.telemetry.tracing import Tracer


class TracingUnavailableError(RuneError):
    """Traces are wanted, and what sends them is not installed."""

    code = "NOT_TRACED"


def tracer(settings: Settings) -> Tracer | None:
    """The tracer that the settings ask for; None costs nothing."""
    if not settings.collector:
        return None
    try:
        from rune.telemetry.otlp import OtlpExporter  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise TracingUnavailableError(
            f"traces go to {settings.collector}, but `{error.name}` is missing: install `rune-engine[telemetry]`,"
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
) -> Engine:
    """The engine over a backend."""
    world = Resources(
        http_policy=settings.http_policy,
        http_allow=settings.http_allow,
        http_per_host=settings.http_per_host,
        smtp_url=settings.smtp_url,
        secret=backend.secret,
    )
    return Engine(
        backend,
        plans,
        registry,
        in_place=settings.in_place,
        slots=settings.slots,
        world=world,
        told=observer.progressed if observer is not None else None,
        rules=settings.retention,
        member=member,
        witness=Instrumentation(tracer=tracer(settings)),
        max_waiting=settings.max_waiting,
        data_cache=data_cache,
    )


class Access(msgspec.Struct, frozen=True):
    """Who may do what, and who did."""

    keys: ApiKeyStore
    grants: CredentialGrants
    log: AuditLogStore
    limits: StartLimitStore


def keys(settings: Settings) -> KeySource:
    """Where the keys of the credentials are."""
    return KeySource(settings.secret_key, settings.key_file)


def keys_found(settings: Settings) -> dict[str, Any]:
    """How many keys there are and where, or why they cannot be used."""
    source = keys(settings)
    try:
        return {"keys": len(source.ring().names), "keys_from": source.where}
    except RuneError as error:
        missing = error.code == "SECRET_KEY_MISSING" and not source.file.exists()
        return {"keys_from": source.where, "keys_trouble": "" if missing else error.message}


def add_key(settings: Settings) -> tuple[str, str]:
    """Make a new key the one that seals; answers its name and where it is."""
    source = keys(settings)
    return source.add(), source.where


def fresh_key() -> str:
    """A key that is kept nowhere."""
    return new_key()
