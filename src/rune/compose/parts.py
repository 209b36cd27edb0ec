"""What every backend is put together with."""

from __future__ import annotations

from typing import Any

import msgspec

from rune.adapters.keyring import new_key
from rune.adapters.keysource import KeySource
from rune.compose.tracing import tracer
from rune.errors import RuneError
from rune.nodes.registry import Registry
from rune.nodes.world import World
from rune.ports.fleet import Member
from rune.ports.grants import Grants
from rune.ports.keys import Keys
from rune.ports.limits import StartLimits
from rune.ports.log import Log
from rune.runtime.backend import Backend
from rune.runtime.engine import Engine
from rune.runtime.observed import Observer
from rune.runtime.planbook import Planbook
from rune.runtime.witness import Witness
from rune.settings import Settings


def new_engine(
    settings: Settings,
    backend: Backend,
    plans: Planbook,
    registry: Registry,
    observer: Observer | None = None,
    member: Member | None = None,
) -> Engine:
    """The engine over a backend."""
    world = World(
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
        witness=Witness(tracer=tracer(settings)),
        max_waiting=settings.max_waiting,
    )


class Access(msgspec.Struct, frozen=True):
    """Who may do what, and who did."""

    keys: Keys
    grants: Grants
    log: Log
    limits: StartLimits


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
