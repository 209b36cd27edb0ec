"""`rune doctor`: whether this machine and this place are fit to run executions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from rune.ports.inspection import Inspection
    from rune.settings import Settings

LEAST_FREE = 1024**3
TOO_FULL = 64 * 1024**2
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
        from rune.cli.problems import print_json  # noqa: PLC0415 - help must be quick

        print_json({"status": "bad" if bad else "ok", "checks": [each._asdict() for each in findings]})
    else:
        from rune.cli.text import by_status, print_table  # noqa: PLC0415

        print_table(
            ("", "check", "found", "what to do"),
            [[by_status(each.verdict), each.check, each.found, each.advice] for each in findings],
        )
    raise typer.Exit(1 if bad else 0)


def _findings(modules: tuple[str, ...]) -> Iterator[Finding]:
    from msgspec.structs import replace  # noqa: PLC0415

    from rune.errors import RuneError  # noqa: PLC0415
    from rune.settings import load_settings  # noqa: PLC0415

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
    from rune.errors import RuneError  # noqa: PLC0415
    from rune.nodes.world import World  # noqa: PLC0415

    try:
        World(http_policy=settings.http_policy, http_allow=settings.http_allow)
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
    from rune.errors import RuneError  # noqa: PLC0415

    if not settings.smtp_url:
        return
    from rune.nodes.io.mailserver import server  # noqa: PLC0415 - only whoever sends mails needs it

    try:
        found = server(settings.smtp_url)
        yield Finding("mail server", "ok", f"{found.host}:{found.port}, {found.security}")
    except RuneError as error:
        yield Finding("mail server", "bad", error.message, "`smtp` nodes without a credential fail")


def _seals(settings: Settings) -> Finding:
    """Whether credentials can be opened here."""
    from rune.compose.parts import keys_found  # noqa: PLC0415

    found = keys_found(settings)
    if found.get("keys_trouble"):
        return Finding("secret keys", "bad", found["keys_trouble"], "nodes that use credentials fail")
    if not found.get("keys"):
        return Finding("secret keys", "ok", "none", "the first `rune credentials add` makes one")
    return Finding("secret keys", "ok", f"{found['keys']} from {found['keys_from']}")


def _telling(settings: Settings) -> Iterator[Finding]:
    """Whether what is measured and traced can be told."""
    import importlib.util  # noqa: PLC0415

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
    import asyncio  # noqa: PLC0415

    from rune.cli.clinic import findings  # noqa: PLC0415
    from rune.compose import survey  # noqa: PLC0415

    yield from findings(asyncio.run(survey(settings)))


def _embedded(settings: Settings) -> Iterator[Finding]:
    from rune.compose import inspection  # noqa: PLC0415
    from rune.errors import RuneError  # noqa: PLC0415

    try:
        seen = inspection(settings)
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
    import platform  # noqa: PLC0415

    found = f"{platform.python_implementation()} {platform.python_version()}"
    if platform.python_implementation() != "CPython":
        return Finding("python", "warn", found, "only CPython is tested")
    return Finding("python", "ok", found)


def _sqlite(seen: Inspection) -> Finding:
    version = tuple(int(part) for part in seen.sqlite.split(".")[:2])
    if version < OLD_SQLITE:
        return Finding(
            "sqlite", "warn", seen.sqlite, "a Python built with SQLite 3.37 or newer is better tested"
        )
    return Finding("sqlite", "ok", seen.sqlite)


def _place(seen: Inspection) -> Finding:
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


def _room(seen: Inspection) -> Finding:
    found = f"{seen.free_bytes / 1024**3:,.1f} GiB free"
    if seen.free_bytes < TOO_FULL:
        return Finding("disk", "bad", found, "make room: nothing is accepted without it")
    if seen.free_bytes < LEAST_FREE:
        return Finding("disk", "warn", found, "make room soon")
    return Finding("disk", "ok", found)


def _file(seen: Inspection) -> Finding:
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


def _lock(seen: Inspection) -> Finding:
    if seen.owned:
        return Finding("owner", "ok", f"process {seen.owner or 'unknown'}")
    if seen.running:
        return Finding("owner", "warn", "none", "executions wait for the next `rune run`")
    return Finding("owner", "ok", "none")


def _durability(settings: Settings, seen: Inspection) -> Finding:
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
    from rune.errors import RuneError  # noqa: PLC0415
    from rune.nodes.discovery import installed, load_module  # noqa: PLC0415

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
