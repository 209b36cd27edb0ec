"""`rune signal`: say something to an execution that waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rune.cli.keyoption import not_empty

if TYPE_CHECKING:
    from rune.settings import Settings


def signal(
    execution: Annotated[
        str, typer.Argument(metavar="ID", help="An execution; the beginning of its id is enough.")
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the waiting node calls the signal.")],
    value: Annotated[
        str, typer.Option("--value", "-v", help="What to tell it: JSON, or @FILE.", show_default=False)
    ] = "null",
    item: Annotated[
        str | None,
        typer.Option(
            "--item", help="Only the one in this item: `users:5`, or `users:5/orders:2`.", show_default=False
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", callback=not_empty, help="Heard at most once under this key, now and later."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Send a signal to the node that waits for its name; if none does yet it is kept. Of several, name the item.

    Exits 0 heard or kept, 1 if the execution has ended.

    Examples: rune signal x019a approve -v '{"by": "Ada"}'; rune signal x019a paid --item orders:3
    """
    from rune.cli.acting import act  # noqa: PLC0415 - help must be quick

    async def work(found: str, settings: Settings) -> int:
        from rune.cli.acting import ask_and_see, tell  # noqa: PLC0415
        from rune.cli.given import value_of  # noqa: PLC0415
        from rune.cli.problems import print_json  # noqa: PLC0415

        data = value_of(value, "--value")
        heard, owned = await ask_and_see(
            settings, lambda desk: desk.signal(found, name, data, key=key, item=item)
        )
        if as_json:
            print_json({"execution_id": found, "signal_id": heard.id, "resumed": heard.resumed})
        elif heard.resumed:
            print(f"{found} goes on: `{name}` was waited for")
        else:
            print(f"{found} keeps `{name}` until something waits for it")
        if not as_json and not owned:
            tell("No process runs executions here now: it goes on with the next `rune run`.")
        return 0

    raise typer.Exit(act(execution, work, as_json=as_json))
