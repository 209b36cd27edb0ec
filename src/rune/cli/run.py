"""`rune run FILE`: run a workflow to its end, durable, in this process."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from rune.core.limits import LIMITS
from rune.core.problem import Problem
from rune.errors import RuneError

EXIT = {"completed": 0, "failed": 1, "halted": 1, "cancelled": 1}
INVALID, UNREACHABLE = 2, 3


def run(
    file: Annotated[str, typer.Argument(help="The workflow: a JSON or YAML file, or - for standard input.")],
    input: Annotated[
        str, typer.Option("--input", "-i", help="The start payload: JSON, or @FILE.", show_default=False)
    ] = "{}",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document, nothing else.")] = False,
    fake_time: Annotated[
        bool, typer.Option("--fake-time", help="Give the execution a clock of its own: waits take no time.")
    ] = False,
    key: Annotated[
        str | None, typer.Option("--key", help="Start at most once under this key, now and later.")
    ] = None,
    nodes: Annotated[
        list[str] | None, typer.Option("--nodes", help="A Python module with custom nodes; may be given again.")
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place/--no-in-place", help="Run pure nodes together, or each on its own.")
    ] = True,
) -> None:
    """Run a workflow to its end and show what became of every node."""
    from rune.cli.running import execute, settings_for  # noqa: PLC0415 - help must be quick

    try:
        settings = settings_for(tuple(nodes or ()), in_place=in_place)
        code = asyncio.run(execute(settings, file, _payload(input), as_json=as_json, fake_time=fake_time, key=key))
    except RuneError as error:
        code = refuse_error(error, as_json=as_json)
    raise typer.Exit(code)


def _payload(given: str) -> bytes:
    """The bytes of the start payload, read no further than the limit."""
    if not given.startswith("@"):
        return given.encode()
    try:
        with Path(given[1:]).open("rb") as file:
            return file.read(LIMITS.payload_bytes + 1)
    except OSError as error:
        raise RuneError(f"--input {given}: {(error.strerror or str(error)).lower()}", code="UNREADABLE") from error


def refuse_error(error: RuneError, *, as_json: bool) -> int:
    """Say why nothing was started."""
    problem = Problem("", error.code, error.message)
    unreachable = error.code == "STORE_AWAY"
    if unreachable and not as_json:
        print(f"rune: {error.message}", file=sys.stderr)
        return UNREACHABLE
    refuse((problem,), as_json=as_json)
    return UNREACHABLE if unreachable else INVALID


def refuse(problems: tuple[Problem, ...], *, as_json: bool) -> int:
    """Print problems; one document on stdout, or lines on stderr."""
    if as_json:
        document: dict[str, Any] = {"status": "invalid", "problems": [msgspec.to_builtins(each) for each in problems]}
        print(json.dumps(document, ensure_ascii=False))
    else:
        for each in problems:
            hint = f" ({each.hint})" if each.hint else ""
            print(f"{each.path or 'document'}: {each.message}{hint}", file=sys.stderr)
    return INVALID
