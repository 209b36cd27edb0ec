"""What `rune run` does once its arguments are understood."""

from __future__ import annotations

import asyncio
import re

import msgspec

from rune.cli.following import Following
from rune.cli.given import labels_of, payload_of
from rune.cli.problems import INTERRUPTED, refuse, refuse_error
from rune.cli.source import read_document
from rune.cli.tally import Tally
from rune.compose import reader
from rune.core.compile import compile_definition
from rune.core.definition import canonical
from rune.core.plan import Plan
from rune.core.problem import Problem
from rune.core.validate import Verdict
from rune.documents import check_document, check_input
from rune.errors import InvalidDocument, RuneError
from rune.nodes.discovery import full_registry
from rune.nodes.registry import Registry
from rune.ports.journal import Accepted
from rune.runtime.desk import Desk
from rune.runtime.engine import Engine
from rune.runtime.launcher import Options, new_execution_id
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
    worker: bool = True


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
    except InvalidDocument as invalid:
        return refuse(invalid.problems, as_json=request.as_json)
    except RuneError as error:
        return refuse_error(error, as_json=request.as_json)
    except KeyboardInterrupt:
        return INTERRUPTED


async def _execute(settings: Settings, request: Request) -> int:
    if settings.url and request.id is not None:
        from rune.cli.remote.asking import not_over_url  # noqa: PLC0415 - a slow import that few need

        raise not_over_url("`--id`", settings)
    payload = payload_of(request.input)
    labels = labels_of(request.labels)
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
    run = Run(settings, request, _compiled(verdict, registry), payload, labels)
    tally = None if request.as_json else Tally(run.id)
    return await Following(
        settings, run, tally, registry=registry, as_json=request.as_json, works=request.worker
    ).to_end()


class Run:
    """The start of a definition that was read from a file."""

    def __init__(
        self, settings: Settings, request: Request, plan: Plan, payload: bytes, labels: dict[str, str]
    ) -> None:
        self.id = request.id or new_execution_id()
        self._settings = settings
        self._request = request
        self._plan = plan
        self._payload = payload
        self._options = Options(key=request.key, labels=labels, fake_time=request.fake_time)
        self._asked = False

    async def here(self, engine: Engine) -> Accepted:
        known = await engine.backend.journal.accepted(self.id)
        if known is not None:
            return self._mine(known, again=self._asked)
        return await engine.launcher.start(
            self._plan,
            self._payload,
            self._options,
            execution=self.id,
        )

    async def there(self, desk: Desk) -> Accepted:
        if self._request.id is not None and not self._asked:
            await self._refuse_known()
        self._asked = True
        accepted = await desk.run(
            canonical(self._plan.definition),
            self._payload,
            self._options,
            execution=self.id,
        )
        return self._mine(accepted, again=True)

    async def _refuse_known(self) -> None:
        async with reader(self._settings) as opened:
            if await opened.execution(self.id) is not None:
                raise self._taken()

    def _mine(self, found: Accepted, *, again: bool) -> Accepted:
        """An id that somebody else used is refused; what was asked for twice is there once."""
        same = found.hash == self._plan.hash and found.input == self._payload
        if found.id == self.id and not (again and same):
            raise self._taken()
        return found

    def _taken(self) -> InvalidDocument:
        message = f"an execution `{self.id}` is there already"
        return InvalidDocument((Problem("--id", "DUPLICATE_ID", message, "see `rune show`"),))


def _compiled(verdict: Verdict, registry: Registry) -> Plan:
    assert verdict.definition is not None
    return compile_definition(verdict.definition, registry.catalogue, verdict.parameters)  # type: ignore[arg-type]
