"""`rune backup` and `rune restore`: a copy of the embedded file while it is in use, and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rune.ports.copies import Copied

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to; it must not be there yet.")],
    as_json: AsJson = False,
) -> None:
    """Copy the embedded file, whoever uses it meanwhile: everything that was acknowledged is in the copy.

    The keys of the credentials are not: keep `secret.key` too, somewhere else.

    Example: rune backup nightly.db
    """
    from rune import compose  # noqa: PLC0415 - help must be quick
    from rune.cli.library import refusing  # noqa: PLC0415
    from rune.cli.local import stay_here  # noqa: PLC0415
    from rune.settings import load_settings  # noqa: PLC0415

    def work() -> int:
        settings = load_settings()
        stay_here(settings, "backup")
        found = compose.backup(settings, file)
        if as_json:
            _print_json(found, file=str(file))
            return 0
        print(f"{_said(found)} are in {file}")
        if found.credentials:
            print(f"{found.credentials} credentials are sealed with a key that is not in it: keep that too")
        return 0

    raise typer.Exit(refusing(work, as_json=as_json))


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `rune backup` wrote.")],
    replace: Annotated[bool, typer.Option("--replace", help="Set aside the file that is there now.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a copy the embedded file. Nobody may own the file; what has not ended goes on with the next `rune run`.

    Example: rune restore nightly.db --replace
    """
    from rune import compose  # noqa: PLC0415 - help must be quick
    from rune.cli.library import refusing  # noqa: PLC0415
    from rune.cli.local import stay_here  # noqa: PLC0415
    from rune.settings import load_settings  # noqa: PLC0415

    def work() -> int:
        settings = load_settings()
        stay_here(settings, "restore")
        found, aside = compose.restore(settings, file, replace=replace)
        if as_json:
            _print_json(found, file=str(file), set_aside=None if aside is None else str(aside))
            return 0
        print(f"{_said(found)} are back")
        if aside is not None:
            print(f"what was there is in {aside}")
        return 0

    raise typer.Exit(refusing(work, as_json=as_json))


def _said(found: Copied) -> str:
    from rune.cli.text import count  # noqa: PLC0415

    return f"{count(found.executions, 'execution')}, {found.running:,} of them not ended,"


def _print_json(found: Copied, **more: str | None) -> None:
    import msgspec  # noqa: PLC0415

    from rune.cli.problems import print_json  # noqa: PLC0415

    print_json({**msgspec.to_builtins(found), **more})
