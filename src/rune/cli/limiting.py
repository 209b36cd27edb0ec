"""`rune workflows limit` and `rune keys limit`: how many starts there may be."""

from __future__ import annotations

from typing import Any

import msgspec
import typer

from rune.cli.access import over_url, read, write
from rune.cli.problems import print_json
from rune.client import models
from rune.compose.parts import Access
from rune.ports.keys import unknown_key
from rune.ports.limits import NONE, Limits, of_key, of_workflow
from rune.settings import Settings


def wanted(given: Limits, *, none: bool) -> Limits | None:
    """What somebody wants to be set; None where they only want to see."""
    if none and given:
        raise typer.BadParameter("--none stands alone")
    return given if given or none else None


def limit_workflow(settings: Settings, workflow: str, limits: Limits | None, *, as_json: bool) -> None:
    """Set limits of a workflow, or show them where none are given, and say what holds."""
    found = _workflow(settings, workflow) if limits is None else _set_workflow(settings, workflow, limits)
    _tell({"workflow_id": workflow}, workflow, found, as_json=as_json)


def limit_key(settings: Settings, id: str, limits: Limits | None, *, as_json: bool) -> None:
    """Set limits of a key, or show them where none are given, and say what holds."""
    found = _key(settings, id) if limits is None else _set_key(settings, id, limits)
    _tell({"id": id}, id, found, as_json=as_json)


def document(limits: Limits) -> dict[str, Any]:
    """Limits for programs."""
    return msgspec.structs.asdict(limits)


def _tell(whose: dict[str, Any], name: str, found: Limits, *, as_json: bool) -> None:
    if as_json:
        print_json({**whose, **document(found)})
    else:
        print(f"{name}: {found if found else 'no limits'}")


def _workflow(settings: Settings, workflow: str) -> Limits:
    if settings.url:
        return _here(over_url(settings, lambda asked: asked.limits(workflow)))
    from rune.cli.library import known  # noqa: PLC0415

    known(settings, workflow, None)
    nothing: dict[str, Limits] = {}
    return read(settings, lambda opened: opened.limits.all(), nothing).get(of_workflow(workflow), NONE)


def _set_workflow(settings: Settings, workflow: str, limits: Limits) -> Limits:
    if settings.url:
        return _here(over_url(settings, lambda asked: asked.limit(workflow, _there(limits))))
    return write(settings, lambda desk: desk.limit_workflow(workflow, limits))


def _key(settings: Settings, id: str) -> Limits:
    if settings.url:
        there = {each.id: _here(each.limits) for each in over_url(settings, lambda asked: asked.keys())}
    else:
        there = read(settings, _keys, {})
    if id not in there:
        raise unknown_key(id)
    return there[id]


async def _keys(opened: Access) -> dict[str, Limits]:
    limits = await opened.limits.all()
    return {each.id: limits.get(of_key(each.id), NONE) for each in await opened.keys.list()}


def _set_key(settings: Settings, id: str, limits: Limits) -> Limits:
    if settings.url:
        return _here(over_url(settings, lambda asked: asked.limit_key(id, _there(limits))))
    return write(settings, lambda desk: desk.limit_key(id, limits))


def _here(there: models.Limits) -> Limits:
    return Limits(**msgspec.structs.asdict(there))


def _there(here: Limits) -> models.Limits:
    return models.Limits(**document(here))
