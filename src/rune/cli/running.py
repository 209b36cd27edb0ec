"""What `rune run` does once its arguments are understood."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import msgspec

from rune.cli.problems import EXIT, INTERRUPTED, print_json, refuse, refuse_error
from rune.cli.progress import Progress, progress
from rune.cli.source import read_document
from rune.cli.stopping import Stop
from rune.cli.tally import Tally
from rune.compose import running_engine
from rune.core.compile import compile_definition
from rune.core.fact import End, Result
from rune.core.limits import LIMITS
from rune.core.plan import Plan
from rune.core.problem import Problem
from rune.core.routing import follow
from rune.core.validate import Verdict
from rune.documents import check_document, check_input
from rune.errors import RuneError
from rune.nodes.discovery import full_registry
from rune.nodes.registry import Registry
from rune.ports.journal import Accepted
from rune.runtime.engine import Engine
from rune.runtime.history import read_history
from rune.runtime.launcher import new_execution_id
from rune.settings import Settings, load_settings

_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    file: str
    input: str = "{}"
    as_json: bool = False
    key: str | None = None
    labels: tuple[str, ...] = ()
    id: str | None = None
    fake_time: bool = False
    nodes: tuple[str, ...] = ()
    in_place: bool = True


def run_to_end(request: Request) -> int:
    """Run a workflow; answers the exit code."""
    try:
        settings = load_settings()
        settings = msgspec.structs.replace(
            settings,
            nodes=(*settings.nodes, *request.nodes),
            in_place=settings.in_place and request.in_place,
        )
        return asyncio.run(_execute(settings, request))
    except RuneError as error:
        return refuse_error(error, as_json=request.as_json)
    except KeyboardInterrupt:
        return INTERRUPTED


async def _execute(settings: Settings, request: Request) -> int:
    payload = _payload(request.input)
    labels = _labels(request.labels)
    registry = full_registry(settings.nodes)
    verdict = check_document(read_document(request.file), registry.catalogue)
    if not verdict.valid or verdict.definition is None:
        return refuse(verdict.problems, as_json=request.as_json)
    _, problems = check_input(verdict.definition, payload)
    if request.id is not None and not _ID.fullmatch(request.id):
        problems.append(
            Problem("--id", "BAD_ID", "an id is made of letters, digits, `_` and `-`, at most 128")
        )
    if problems:
        return refuse(problems, as_json=request.as_json)
    plan = _compiled(verdict, registry)
    name = request.id or new_execution_id()
    tally = None if request.as_json else Tally(name)
    with Stop() as stop:
        async with running_engine(settings, registry=registry, observer=tally) as engine:
            if request.id is not None and await engine.backend.journal.accepted(name) is not None:
                taken = Problem(
                    "--id", "DUPLICATE_ID", f"an execution `{name}` is there already", "see `rune show`"
                )
                return refuse((taken,), as_json=request.as_json)
            ending = engine.completions.expect(name)
            accepted = await engine.launcher.start(
                plan, payload, fake_time=request.fake_time, key=request.key, labels=labels, execution=name
            )
            if accepted.id != name:  # its key was used before
                ending = await engine.expect(accepted.id)
            shown = await _shown(engine, accepted, plan, tally)
            await _until(ending, stop, shown)
            if not ending.done():
                return await _stopped(engine, accepted, plan, stop, as_json=request.as_json)
            return await _ended(engine, accepted, plan, ending.result(), as_json=request.as_json)


def _payload(given: str) -> bytes:
    """The bytes of the start payload, read no further than the limit."""
    if not given.startswith("@"):
        return given.encode()
    try:
        with Path(given[1:]).open("rb") as file:
            return file.read(LIMITS.payload_bytes + 1)
    except OSError as error:
        raise RuneError(
            f"--input {given}: {(error.strerror or str(error)).lower()}", code="UNREADABLE"
        ) from error


def _labels(given: tuple[str, ...]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise RuneError(f"--label {each}: a label is written name=value", code="BAD_LABEL")
        labels[name] = value
    return labels


def _compiled(verdict: Verdict, registry: Registry) -> Plan:
    assert verdict.definition is not None
    return compile_definition(verdict.definition, registry.catalogue, verdict.parameters)  # type: ignore[arg-type]


async def _shown(engine: Engine, accepted: Accepted, plan: Plan, tally: Tally | None) -> Progress | None:
    if tally is None:
        return None
    joined = accepted.id != tally.execution  # under a key that was used before: it may have come far
    tally.begin(plan, accepted.id)
    if joined:
        for stored in await engine.backend.journal.facts(accepted.id):
            if isinstance(stored.fact, Result):
                tally.add(follow(plan, stored.fact))
    return progress(tally)


async def _until(ending: asyncio.Future[End], stop: Stop, shown: Progress | None) -> None:
    """Until the execution has ended or somebody wants to stop."""
    try:
        while True:
            pause = shown.pause if shown is not None else None
            awaited: set[asyncio.Future[Any]] = {ending, stop.asked}
            done, _ = await asyncio.wait(awaited, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return
            if shown is not None:
                shown.refresh()
    finally:
        if shown is not None:
            shown.close()


async def _ended(engine: Engine, accepted: Accepted, plan: Plan, end: End, *, as_json: bool) -> int:
    history = await read_history(engine.backend.journal, engine.backend.blob, accepted, plan)
    document = await history.document()
    if as_json:
        print_json(document)
    else:
        from rune.cli.rendering import print_document  # noqa: PLC0415 - a document needs no table

        print_document(document)
    return EXIT[end.status]


async def _stopped(engine: Engine, accepted: Accepted, plan: Plan, stop: Stop, *, as_json: bool) -> int:
    """What runs now may finish within the grace period; a second signal ends that too."""
    if as_json:
        history = await read_history(engine.backend.journal, engine.backend.blob, accepted, plan)
        print_json(await history.document())
    print(
        f"Stopped. {accepted.id} is kept as it is and goes on with the next `rune run`;"
        f" look at it with `rune show {accepted.id}`.",
        file=sys.stderr,
        flush=True,
    )
    stop.let_go()
    return stop.code
