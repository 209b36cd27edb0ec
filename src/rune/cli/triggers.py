"""`rune triggers`: what starts executions by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rune.settings import Settings

triggers = typer.Typer(
    name="triggers",
    help="Hooks and schedules of stored workflows: list them, switch them on and off, renew what is secret.",
    no_args_is_help=True,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A workflow with one trigger, WORKFLOW/NODE, or an id.")
]


@triggers.command("list")
def list_triggers(
    workflow: Annotated[
        str | None, typer.Argument(metavar="[WORKFLOW]", help="Only those of this workflow.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the triggers: where hooks are, and when schedules are due."""
    from rune.cli.schedules import print_triggers  # noqa: PLC0415 - help must be quick

    def work(settings: Settings) -> None:
        print_triggers(_found(settings, workflow), as_json=as_json)

    _leave(work, as_json=as_json)


@triggers.command()
def show(name: Name, as_json: Json = False) -> None:
    """Show a trigger, and the next times of a schedule.

    Examples: rune triggers show orders; rune triggers show orders/in --json
    """
    from rune.cli.schedules import print_trigger  # noqa: PLC0415 - help must be quick

    def work(settings: Settings) -> None:
        print_trigger(_one(settings, name), settings.url, as_json=as_json)

    _leave(work, as_json=as_json)


@triggers.command()
def enable(name: Name, as_json: Json = False) -> None:
    """Switch a trigger on. What was due while it was off is not made up for."""
    _leave(lambda settings: _switch(settings, name, enabled=True, as_json=as_json), as_json=as_json)


@triggers.command()
def disable(name: Name, as_json: Json = False) -> None:
    """Switch a trigger off: a hook is not there then, a schedule is never due."""
    _leave(lambda settings: _switch(settings, name, enabled=False, as_json=as_json), as_json=as_json)


@triggers.command()
def rotate(
    name: Name,
    secret: Annotated[
        bool, typer.Option("--secret", help="Make a new secret, and print it this once; the path stays.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Give a hook a new path. The old one leads nowhere from now on.

    With --secret it gets a new secret instead: what callers sign with (`auth: hmac`), or send as
    `Authorization: Bearer …` (`auth: header`).

    Examples: rune triggers rotate orders; rune triggers rotate orders --secret
    """

    def work(settings: Settings) -> None:
        _tell_rotated(_rotated(settings, name, secret=secret), settings.url, as_json=as_json)

    _leave(work, as_json=as_json)


def _leave(work: Any, *, as_json: bool) -> None:
    from rune.cli.library import refusing  # noqa: PLC0415
    from rune.settings import load_settings  # noqa: PLC0415

    def done() -> int:
        work(load_settings())
        return 0

    raise typer.Exit(refusing(done, as_json=as_json))


def _found(settings: Settings, workflow: str | None) -> list[dict[str, Any]]:
    """Triggers as documents, from wherever they are."""
    import msgspec  # noqa: PLC0415

    from rune.cli import reach  # noqa: PLC0415
    from rune.cli.library import ask  # noqa: PLC0415

    if settings.url:
        return [_plain(each) for each in _over_url(settings, lambda asked: asked.triggers(workflow))]
    if not reach.exists(settings):
        return []
    from rune.master.triggerviews import trigger_view  # noqa: PLC0415

    found = ask(settings, lambda desk: desk.triggers(workflow))
    return [msgspec.to_builtins(trigger_view(each)) for each in found]


def _one(settings: Settings, name: str) -> dict[str, Any]:
    from rune.ports.trigger import UnknownTrigger  # noqa: PLC0415

    workflow, _, node = name.partition("/")
    found = [
        each
        for each in _found(settings, None)
        if each["id"] == name or (each["workflow_id"] == workflow and node in ("", each["node_id"]))
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UnknownTrigger(f"there is no trigger `{name}`; `rune triggers list` shows what there is")
    named = ", ".join(f"{each['workflow_id']}/{each['node_id']}" for each in found)
    raise UnknownTrigger(f"`{name}` has {len(found)} triggers: say which, of {named}")


def _switch(settings: Settings, name: str, *, enabled: bool, as_json: bool) -> None:
    import msgspec  # noqa: PLC0415

    from rune.cli.library import ask  # noqa: PLC0415
    from rune.cli.problems import print_json  # noqa: PLC0415
    from rune.master.triggerviews import trigger_view  # noqa: PLC0415

    id = _one(settings, name)["id"]
    if settings.url:
        document = _plain(_over_url(settings, lambda asked: asked.enable_trigger(id, enabled=enabled)))
    else:
        changed = ask(settings, lambda desk: desk.enable_trigger(id, enabled))
        document = msgspec.to_builtins(trigger_view(changed))
    if as_json:
        print_json(document)
    else:
        print(f"{document['workflow_id']}/{document['node_id']} is {'on' if enabled else 'off'}")


def _rotated(settings: Settings, name: str, *, secret: bool) -> dict[str, Any]:
    import msgspec  # noqa: PLC0415

    from rune.cli.library import ask  # noqa: PLC0415
    from rune.master.triggerviews import rotated_view  # noqa: PLC0415

    id = _one(settings, name)["id"]
    if settings.url:
        return _plain(_over_url(settings, lambda asked: asked.rotate_trigger(id, secret=secret)))
    found: dict[str, Any] = msgspec.to_builtins(
        rotated_view(ask(settings, lambda desk: desk.rotate_trigger(id, secret)))
    )
    return found


def _tell_rotated(document: dict[str, Any], url: str, *, as_json: bool) -> None:
    import sys  # noqa: PLC0415

    from rune.cli.problems import print_json  # noqa: PLC0415

    if as_json:
        print_json(document)
    elif document["new_secret"] is not None:
        print(document["new_secret"])
        print("keep it now, it is not shown again", file=sys.stderr)
    else:
        print(f"{url}{document['webhook']['path']}")


def _over_url(settings: Settings, wish: Any) -> Any:
    import asyncio  # noqa: PLC0415

    from rune.cli.remote.asking import client  # noqa: PLC0415

    async def asked() -> Any:
        async with client(settings) as opened:
            return await wish(opened)

    return asyncio.run(asked())


def _plain(answer: Any) -> dict[str, Any]:
    import msgspec  # noqa: PLC0415

    found: dict[str, Any] = msgspec.to_builtins(answer)
    return found
