"""`rune workers`: the processes that take part in a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rune.ports.fleet import Member
    from rune.settings import Settings


def workers(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the processes of the cluster that were seen of late: what they do, and how busy they are.

    A process that has not been seen for 15 s is not listed. Its work is taken over sooner than that, by its leases.
    """
    from rune.cli.problems import refuse_error  # noqa: PLC0415 - help must be quick
    from rune.errors import RuneError  # noqa: PLC0415
    from rune.settings import load_settings  # noqa: PLC0415

    try:
        found = _members(load_settings())
    except RuneError as error:
        raise typer.Exit(refuse_error(error, as_json=as_json)) from None
    if as_json:
        import msgspec  # noqa: PLC0415

        from rune.cli.problems import print_json  # noqa: PLC0415

        print_json({"workers": msgspec.to_builtins(found)})
    elif not found:
        print("no process takes part now; `rune serve worker` starts one")
    else:
        _print(found)


def _members(settings: Settings) -> list[Member]:
    import asyncio  # noqa: PLC0415

    if not settings.url:
        from rune.compose import members  # noqa: PLC0415

        return asyncio.run(members(settings))
    from rune.cli.access import over_url  # noqa: PLC0415
    from rune.cli.remote.fleet import member  # noqa: PLC0415

    return [member(each) for each in over_url(settings, lambda asked: asked.workers())]


def _print(found: list[Member]) -> None:
    import time  # noqa: PLC0415

    from rune.cli.text import Cell, clean, duration, print_table  # noqa: PLC0415

    now = time.time_ns() // 1_000_000
    rows: list[list[Cell]] = [
        [
            clean(each.name),
            ", ".join(each.roles) + (", draining" if each.draining else ""),
            ", ".join(each.queues) if "worker" in each.roles else "",
            f"{each.busy}/{each.slots}" if "worker" in each.roles else "",
            duration(max(0, now - each.started_at)),
            duration(max(0, now - each.seen_at)),
            each.version,
        ]
        for each in found
    ]
    print_table(["process", "roles", "queues", "busy", "up", "seen", "version"], rows)
