"""What `rune run` does once its arguments are understood."""

from __future__ import annotations

import sys

import msgspec

from rune.cli.run import EXIT, refuse
from rune.cli.source import read_document
from rune.compose import running_engine
from rune.core.compile import compile_definition
from rune.core.validate import Verdict
from rune.documents import check_document, check_input
from rune.nodes.discovery import full_registry
from rune.runtime.engine import Engine
from rune.runtime.history import read_history
from rune.settings import Settings, load_settings


def settings_for(nodes: tuple[str, ...], *, in_place: bool) -> Settings:
    """The configuration, with what the command line adds."""
    settings = load_settings()
    return msgspec.structs.replace(
        settings, nodes=(*settings.nodes, *nodes), in_place=settings.in_place and in_place
    )


async def execute(
    settings: Settings, file: str, payload: bytes, *, as_json: bool, fake_time: bool, key: str | None
) -> int:
    """Check, start, wait, show. Answers the exit code."""
    registry = full_registry(settings.nodes)
    verdict = check_document(read_document(file), registry.catalogue)
    if not verdict.valid or verdict.definition is None:
        return refuse(verdict.problems, as_json=as_json)
    _, problems = check_input(verdict.definition, payload)
    if problems:
        return refuse(tuple(problems), as_json=as_json)
    async with running_engine(settings) as engine:
        return await _run(engine, verdict, payload, as_json=as_json, fake_time=fake_time, key=key)


async def _run(
    engine: Engine, verdict: Verdict, payload: bytes, *, as_json: bool, fake_time: bool, key: str | None
) -> int:
    assert verdict.definition is not None
    plan = compile_definition(verdict.definition, engine.registry.catalogue, verdict.parameters)  # type: ignore[arg-type]
    accepted, ending = await engine.start(plan, payload, fake_time=fake_time, key=key)
    end = await ending
    history = await read_history(engine.backend.journal, engine.backend.blob, accepted, plan)
    document = await history.document()
    if as_json:
        sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
    else:
        from rune.cli.show import show_document  # noqa: PLC0415 - rich is slow to import

        show_document(document)
    return EXIT[end.status]
