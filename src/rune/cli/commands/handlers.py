"""`rune handlers`: the workflows that are started for failed, late and missing executions."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from rune.cli.backend import HINTS, call_local_service, exit_with, with_client
from rune.cli.output import local_time, print_json, print_table
from rune.core.definition.model import NO_HANDLER, HookHandler
from rune.ports.journal import HandlerDefaults
from rune.server.routes.handlers import failed_view, handlers_view
from rune.settings import Settings

handlers = typer.Typer(
    name="handlers",
    help="Set the workflows that handle failed, late and missing executions.\n\nThey are for executions of workflows "
    "that name none. Without a command: show them.",
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Failed = Annotated[bool, typer.Option("--failed", help="List handlers that could not be started, and why.")]


@handlers.callback(invoke_without_command=True)
def _handlers(context: typer.Context, failed: Failed = False, as_json: Json = False) -> None:
    if context.invoked_subcommand is None:
        show(failed, as_json)


@handlers.command()
def show(failed: Failed = False, as_json: Json = False) -> None:
    """Show the default handlers, or with --failed those that could not be started."""

    def work(settings: Settings) -> None:
        if failed:
            _print_failed(_failed(settings), as_json=as_json)
        else:
            _print_defaults(_defaults(settings), as_json=as_json)

    exit_with(work, as_json=as_json, hints=HINTS)


@handlers.command("set")
def set_handlers(
    on_failure: Annotated[
        str | None,
        typer.Option(metavar="WORKFLOW", help="Start this one for failed executions; `none`: none."),
    ] = None,
    on_late: Annotated[
        str | None,
        typer.Option(metavar="WORKFLOW", help="Start this one for late executions; `none`: none."),
    ] = None,
    on_missing: Annotated[
        str | None,
        typer.Option(metavar="WORKFLOW", help="Start this one for missing executions; `none`: none."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Set the handlers of all deployed workflows whose settings name none. Others stay as they are.

    Examples:
      rune handlers set --on-failure tell-ops
      rune handlers set --on-late none
    """
    given = {"on_failure": on_failure, "on_late": on_late, "on_missing": on_missing}
    if not any(given.values()):
        raise typer.BadParameter("give --on-failure, --on-late or --on-missing")

    def work(settings: Settings) -> None:
        found = _defaults(settings)
        wanted = {name: found[name] if each is None else _named(each) for name, each in given.items()}
        _print_defaults(_set(settings, wanted), as_json=as_json)

    exit_with(work, as_json=as_json, hints=HINTS)


def _named(workflow: str) -> dict[str, Any] | None:
    return None if workflow == NO_HANDLER else {"workflow": workflow}


def _defaults(settings: Settings) -> dict[str, Any]:
    if settings.url:
        return _plain(with_client(settings, lambda api: api.handlers()))
    found = call_local_service(settings, lambda service: service.handlers.defaults())
    return _plain(handlers_view(found))


def _set(settings: Settings, wanted: dict[str, Any]) -> dict[str, Any]:
    if settings.url:
        given = {name: each for name, each in wanted.items() if each is not None}
        return _plain(with_client(settings, lambda api: api.set_handlers(**given)))
    defaults = msgspec.convert(wanted, HandlerDefaults)

    def put(service: Any) -> Any:
        return service.handlers.set_defaults(defaults.on_failure, defaults.on_late, defaults.on_missing)

    return _plain(handlers_view(call_local_service(settings, put)))


def _failed(settings: Settings) -> list[dict[str, Any]]:
    if settings.url:
        return [_plain(each) for each in with_client(settings, lambda api: api.failed_handlers())]
    found = call_local_service(settings, lambda service: service.handlers.failed())
    return [_plain(failed_view(each)) for each in found]


def _plain(found: Any) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(found)
    return plain


def _print_defaults(found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    for name in ("on_failure", "on_late", "on_missing"):
        handler = None if found[name] is None else msgspec.convert(found[name], HookHandler)
        print(f"{name}: {NO_HANDLER if handler is None else handler}")


def _print_failed(found: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json({"handlers": found})
    elif not found:
        print("every handler was started")
    else:
        rows = [
            (
                each["execution_id"] or each["workflow"],
                each["kind"],
                str(each["tries"]),
                f"given up {local_time(each['given_up_at'])}" if each["given_up_at"] else "is repeated",
                each["error"],
            )
            for each in found
        ]
        print_table(("for", "kind", "tries", "state", "error"), rows)
