"""`rune run`: run a workflow from a file to its end."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
import typer

from rune.bootstrap import open_reader
from rune.cli.arguments import (
    FakeTime,
    IgnoreFailedItems,
    LabelOptions,
    Nodes,
    OutletOptions,
    PinOptions,
    StartKey,
    WorkflowInput,
    labels_of,
    payload_of,
    pins_of,
    read_document,
    with_modules,
)
from rune.cli.backend import CommandServices, not_over_url
from rune.cli.event_loop import run_through
from rune.cli.follow import ExecutionFollower
from rune.cli.output import INTERRUPTED, file_of, print_error, print_problems
from rune.cli.progress import ProgressCounter
from rune.core.definition.model import canonical
from rune.core.definition.parser import with_pins
from rune.core.definition.problems import UNREADABLE, Problem
from rune.core.execution.stored_value import Inline
from rune.core.plan.compiler import compile_definition
from rune.core.plan.model import Plan
from rune.core.start_keys import check_key
from rune.core.validation.validate import ValidationResult
from rune.documents.loader import check_document, input_problems
from rune.errors import InvalidDocumentError, RuneError
from rune.nodes.registry import Registry, full_registry
from rune.ports.journal import ExecutionRecord
from rune.runtime.engine import Engine
from rune.runtime.lifecycle.launcher import StartOptions, new_execution_id
from rune.runtime.stored_values import same_input
from rune.settings import Settings, load_settings
from rune.telemetry.logs import create_info_records


def run(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Workflow: a JSON or YAML file, a folder that contains one, or `-` for standard input.",
        ),
    ],
    input: WorkflowInput = "{}",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document and nothing else.")
    ] = False,
    key: StartKey = None,
    labels: LabelOptions = None,
    id: Annotated[
        str | None, typer.Option("--id", help="Id of the execution. Default: a generated one.")
    ] = None,
    fake_time: FakeTime = False,
    ignore_failed_items: IgnoreFailedItems = False,
    fail_on_items: Annotated[
        bool, typer.Option("--fail-on-items", hidden=True, help="What the command does without it too.")
    ] = False,
    pins: PinOptions = None,
    outlets: OutletOptions = None,
    nodes: Nodes = None,
    in_place: Annotated[
        bool,
        typer.Option("--in-place/--no-in-place", help="Run chains of pure nodes without queueing each one."),
    ] = True,
    worker: Annotated[
        bool,
        typer.Option(
            "--worker/--no-worker",
            help="On a cluster: also run nodes in this process, or leave them to the workers.",
        ),
    ] = True,
) -> None:
    """Run a workflow to its end and show the result of every node.

    Unfinished executions of earlier runs resume as well. Ctrl-C loses nothing:
    the next run resumes the execution.

    Exit codes: 0 completed; 1 failed, halted or cancelled; 2 invalid document
    or input; 3 backend unreachable; 4 completed, but items failed that the
    workflow does not tolerate; 130 or 143 stopped by a signal.

    Examples:
      rune run examples/hello -i '{"name": "Ada"}'
      rune run order.yaml -i @order.json --idempotency-key order-7
      rune run order.yaml --pin 'price={"amount": 7}'
    """
    request = Request(
        file=file,
        input=input,
        as_json=as_json,
        key=key,
        labels=tuple(labels or ()),
        id=id,
        fake_time=fake_time,
        ignore_failed_items=ignore_failed_items and not fail_on_items,
        pins=tuple(pins or ()),
        outlets=tuple(outlets or ()),
        nodes=tuple(nodes or ()),
        in_place=in_place,
        worker=worker,
    )
    raise typer.Exit(run_to_end(request))


_ID_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,128}")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `rune run`."""

    file: str
    input: str = "{}"
    as_json: bool = False
    key: str | None = None
    labels: tuple[str, ...] = ()
    id: str | None = None
    fake_time: bool = False
    ignore_failed_items: bool = False
    pins: tuple[str, ...] = ()
    outlets: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    in_place: bool = True
    worker: bool = True


def run_to_end(request: Request) -> int:
    """Run a workflow and return the exit code."""
    try:
        settings = with_modules(load_settings(), request.nodes)
        settings = msgspec.structs.replace(settings, in_place=settings.in_place and request.in_place)
        create_info_records()
        return run_through(_run(settings, request))
    except InvalidDocumentError as invalid:
        return print_problems(invalid.problems, as_json=request.as_json)
    except RuneError as error:
        return print_error(error, as_json=request.as_json)
    except KeyboardInterrupt:
        return INTERRUPTED


async def _run(settings: Settings, request: Request) -> int:
    if settings.url and request.id is not None:
        raise not_over_url("`--id`", settings)
    payload = payload_of(request.input)
    labels = labels_of(request.labels)
    registry = full_registry(settings.nodes)
    pins = pins_of(request.pins, request.outlets)
    verdict = check_document(with_pins(read_document(request.file), pins), registry.catalogue)
    if not verdict.valid or verdict.definition is None:
        file = file_of(request.file, verdict.source)
        problems = [_with_start_hint(each, request.file) for each in verdict.problems]
        return print_problems(problems, as_json=request.as_json, file=file)
    problems = input_problems(verdict.definition, payload)
    if request.id is not None and not _ID_PATTERN.fullmatch(request.id):
        problems.append(
            Problem("--id", "BAD_ID", "an id has 1 to 128 characters: letters, digits, `_` and `-`")
        )
    if problems:
        return print_problems(problems, as_json=request.as_json)
    run = Run(settings, request, _compile(verdict, registry), payload, labels)
    counter = None if request.as_json else ProgressCounter(run.id)
    return await ExecutionFollower(
        settings,
        run,
        counter,
        registry=registry,
        as_json=request.as_json,
        owning=True,
        working=request.worker,
        ignore_failed_items=request.ignore_failed_items,
    ).follow_to_end()


def _with_start_hint(problem: Problem, given: str) -> Problem:
    """Add the command for deployed workflows to the problem of a missing file that may be the id of one."""
    if problem.code != UNREADABLE or problem.hint or not _ID_PATTERN.fullmatch(given):
        return problem
    return msgspec.structs.replace(problem, hint=f"`rune start {given}` starts a deployed workflow")


class Run:
    """Starts the definition of a file, at most once under the chosen execution id."""

    def __init__(
        self, settings: Settings, request: Request, plan: Plan, payload: bytes, labels: dict[str, str]
    ) -> None:
        self.id = request.id or new_execution_id()
        self._settings = settings
        self._request = request
        self._plan = plan
        self._payload = payload
        self._options = StartOptions(
            key=request.key, labels=labels, fake_time=request.fake_time, followed=True
        )
        self._sent = False

    async def start_locally(self, engine: Engine) -> ExecutionRecord:
        check_key(self._request.key)
        known = await engine.backend.journal.accepted(self.id)
        if known is not None:
            return self._check_own(known, again=self._sent)
        record = engine.launcher.new_record(self._plan, self._payload, self._options, execution=self.id)
        return await engine.launcher.start(record, self._plan, followed=self._options.followed)

    async def start_remotely(self, services: CommandServices) -> ExecutionRecord:
        if self._request.id is not None and not self._sent:
            await self._reject_known_id()
        self._sent = True
        accepted = await services.executions.start_definition(
            canonical(self._plan.definition),
            self._payload,
            self._options,
            execution=self.id,
        )
        return self._check_own(accepted, again=True)

    async def _reject_known_id(self) -> None:
        async with open_reader(self._settings) as opened:
            if await opened.execution(self.id) is not None:
                raise self._duplicate_id()

    def _check_own(self, found: ExecutionRecord, *, again: bool) -> ExecutionRecord:
        """Reject an id that another start has used; a repeated start returns its own execution."""
        same = found.hash == self._plan.hash and same_input(found.input, Inline(self._payload))
        if found.id == self.id and not (again and same):
            raise self._duplicate_id()
        return found

    def _duplicate_id(self) -> InvalidDocumentError:
        message = f"an execution with the id `{self.id}` exists"
        return InvalidDocumentError((Problem("--id", "DUPLICATE_ID", message, "see `rune show`"),))


def _compile(verdict: ValidationResult, registry: Registry) -> Plan:
    assert verdict.definition is not None
    return compile_definition(verdict.definition, registry.catalogue, verdict.parameters)  # type: ignore[arg-type]
