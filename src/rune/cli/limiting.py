"""`rune workflows limit`: how many starts of a workflow there may be."""

from __future__ import annotations

from typing import Any

import msgspec

from rune.cli.access import over_url, read, write
from rune.cli.problems import print_json
from rune.client import models
from rune.ports.limits import NONE, Limits, of_workflow
from rune.settings import Settings


def limit(settings: Settings, workflow: str, wanted: Limits | None, *, as_json: bool) -> None:
    """Set limits, or show them where none are given, and say what holds."""
    found = _shown(settings, workflow) if wanted is None else _set(settings, workflow, wanted)
    if as_json:
        print_json({"workflow_id": workflow, **document(found)})
    else:
        print(f"{workflow}: {found if found else 'no limits'}")


def document(limits: Limits) -> dict[str, Any]:
    """Limits for programs."""
    return msgspec.structs.asdict(limits)


def _shown(settings: Settings, workflow: str) -> Limits:
    if settings.url:
        return _here(over_url(settings, lambda asked: asked.limits(workflow)))
    from rune.cli.library import known  # noqa: PLC0415

    known(settings, workflow, None)
    nothing: dict[str, Limits] = {}
    return read(settings, lambda opened: opened.limits.all(), nothing).get(of_workflow(workflow), NONE)


def _set(settings: Settings, workflow: str, wanted: Limits) -> Limits:
    if settings.url:
        said = models.Limits(**document(wanted))
        return _here(over_url(settings, lambda asked: asked.limit(workflow, said)))
    return write(settings, lambda desk: desk.limit_workflow(workflow, wanted))


def _here(there: models.Limits) -> Limits:
    return Limits(**msgspec.structs.asdict(there))
