"""`rune start`, `cancel`, `pause`, `resume`, `signal`, `retry` and `rerun`: start and control executions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rune.cli.arguments import (
    FakeTime,
    IgnoreFailedItems,
    LabelOptions,
    OutletOptions,
    PinOptions,
    StartKey,
    WorkflowInput,
    labels_of,
    not_empty,
    payload_of,
    pins_of,
    read_document,
    value_of,
)
from rune.cli.backend import call, exists, split_reference
from rune.cli.follow import (
    call_and_check_owner,
    print_notice,
    run_command,
    run_on_execution,
    start_execution,
)
from rune.cli.output import print_json
from rune.core.definition.model import canonical
from rune.errors import InvalidDocumentError, RuneError
from rune.ports.workflows import LATEST, workflow_not_found
from rune.runtime.lifecycle.launcher import StartOptions, new_execution_id
from rune.settings import Settings

Id = Annotated[str, typer.Argument(metavar="ID", help="Execution id, or a unique prefix of it.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Key = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key",
        callback=not_empty,
        help="Idempotency key: a second call with the same key returns the first execution.",
    ),
]
Wait = Annotated[
    bool,
    typer.Option(
        "--wait", help="Wait for the end of the new execution, with the output and exit codes of `rune run`."
    ),
]
Item = Annotated[
    str | None,
    typer.Option(
        "--item",
        help="Only for this item, for example `users:5` or `users:5/orders:2`.",
        show_default=False,
    ),
]
FirstNode = Annotated[
    str,
    typer.Option(
        "--from", metavar="NODE", help="First node to run again. Results of nodes before it are reused."
    ),
]
NodeInput = Annotated[
    str | None,
    typer.Option(
        "--input",
        "-i",
        help="Input for the node, as JSON or @FILE, instead of the one it received.",
        show_default=False,
    ),
]
Parameters = Annotated[
    str | None,
    typer.Option(
        "--parameters",
        help="Object with other parameters of the node, as JSON or @FILE.",
        show_default=False,
    ),
]
OtherVersion = Annotated[
    str | None,
    typer.Option("--version", help="Another version of the workflow, or an alias.", show_default=False),
]
EditedFile = Annotated[
    str | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="Edited workflow that is not deployed: a JSON or YAML file, a folder, or `-`.",
        show_default=False,
    ),
]


def start(
    given: Annotated[
        str,
        typer.Argument(
            metavar="NAME[@VERSION]",
            help="Deployed workflow, with a version number or an alias. Default: the latest version.",
        ),
    ],
    input: WorkflowInput = "{}",
    key: StartKey = None,
    labels: LabelOptions = None,
    priority: Annotated[
        int | None,
        typer.Option(
            "--priority", min=0, max=10, help="Priority, 0 to 10. Default: the priority of the workflow."
        ),
    ] = None,
    fake_time: FakeTime = False,
    pins: PinOptions = None,
    outlets: OutletOptions = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the end, with the output and exit codes of `rune run`.")
    ] = False,
    ignore_failed_items: IgnoreFailedItems = False,
    as_json: Json = False,
) -> None:
    """Start a deployed workflow and print the id of the execution.

    The process that runs executions executes it: `rune up`, a `rune run`, or the
    workers of a cluster. --wait waits for one, and then for the end.

    Examples:
      rune start orders -i @order.json --idempotency-key order-7
      rune start orders@stable --wait
    """

    async def work(settings: Settings) -> int:
        payload, parsed_labels = payload_of(input), labels_of(tuple(labels or ()))
        options = StartOptions(
            key=key, labels=parsed_labels, fake_time=fake_time, pins=pins_of(pins, outlets), followed=wait
        )
        return await _start(
            settings,
            given,
            payload,
            options,
            priority,
            wait=wait,
            as_json=as_json,
            ignore_failed_items=ignore_failed_items,
        )

    raise typer.Exit(run_command(work, as_json=as_json))


def _refuse_file(given: str) -> None:
    if "." in given and Path(given).is_file():  # the id of a workflow has no dot
        way = f"`rune run {given}` runs it, `rune deploy {given}` stores it to be started by its id"
        raise RuneError(f"`{given}` is a file: {way}", code="UNKNOWN_WORKFLOW")


async def _start(
    settings: Settings,
    given: str,
    payload: bytes,
    options: StartOptions,
    priority: int | None,
    *,
    wait: bool,
    as_json: bool,
    ignore_failed_items: bool,
) -> int:
    _refuse_file(given)
    workflow, which = split_reference(given)
    # Without a store the workflow is unknown; opening the services would create the database file.
    if not exists(settings):
        raise workflow_not_found(workflow, (), LATEST)
    name = new_execution_id()
    return await start_execution(
        settings,
        lambda service: service.executions.start(
            workflow, which, payload, options, priority=priority, execution=name
        ),
        wait=wait,
        as_json=as_json,
        name=name,
        ignore_failed_items=ignore_failed_items,
    )


def cancel(
    execution: Annotated[str, typer.Argument(metavar="ID", help="Execution id, or a unique prefix of it.")],
    reason: Annotated[str, typer.Option("--reason", help="Reason, stored with the execution.")] = "",
    as_json: Json = False,
) -> None:
    """Cancel an execution: running nodes are stopped, no new ones start.

    Exit codes: 0 cancelled; 1 the execution had already ended.

    Example: rune cancel x019a --reason "ordered twice"
    """

    async def work(found: str, settings: Settings) -> int:
        status = await call(settings, lambda service: service.executions.cancel(found, reason))
        if as_json:
            print_json({"execution_id": found, "status": status})
        else:
            print(f"{status} {found}")
        return 0

    raise typer.Exit(run_on_execution(execution, work, as_json=as_json))


def pause(execution: Id, as_json: Json = False) -> None:
    """Pause an execution: running nodes finish, no new ones start.

    Exit codes: 0 paused, now or before; 1 the execution has ended.

    Example: rune pause x019a
    """
    _set_paused(execution, paused=True, as_json=as_json)


def resume(execution: Id, as_json: Json = False) -> None:
    """Resume a paused execution.

    Exit codes: 0 running, now or before; 1 the execution has ended.

    Example: rune resume x019a
    """
    _set_paused(execution, paused=False, as_json=as_json)


def _set_paused(execution: str, *, paused: bool, as_json: bool) -> None:
    async def work(found: str, settings: Settings) -> int:

        changed = await call(
            settings,
            lambda service: service.executions.pause(found) if paused else service.executions.resume(found),
        )
        status = "paused" if paused else "running"
        if as_json:
            print_json({"execution_id": found, "status": status, "changed": changed})
        elif changed:
            print(f"{status} {found}")
        else:
            print(f"{found} was {'already paused' if paused else 'not paused'}")
        return 0

    raise typer.Exit(run_on_execution(execution, work, as_json=as_json))


def signal(
    execution: Annotated[str, typer.Argument(metavar="ID", help="Execution id, or a unique prefix of it.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the signal, as in the waiting node.")],
    value: Annotated[
        str, typer.Option("--value", "-v", help="Value of the signal, as JSON or @FILE.", show_default=False)
    ] = "null",
    item: Annotated[
        str | None,
        typer.Option(
            "--item",
            help="Only the node run of this item, for example `users:5` or `users:5/orders:2`.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--idempotency-key",
            callback=not_empty,
            help="Idempotency key: signals with the same key are delivered once.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Send a signal to an execution.

    The node that waits for this name resumes. If no node waits for it yet, the
    signal is stored until one does. A name that no node of the workflow can
    wait for is rejected. If several items wait for it, --item selects one.

    Exit codes: 0 delivered or stored; 1 the execution has ended; 2 rejected.

    Examples:
      rune signal x019a approve -v '{"by": "Ada"}'
      rune signal x019a paid --item orders:3
    """

    async def work(found: str, settings: Settings) -> int:
        data = value_of(value, "--value")
        result, owned = await call_and_check_owner(
            settings, lambda service: service.executions.signal(found, name, data, key=key, item=item)
        )
        if as_json:
            print_json({"execution_id": found, "signal_id": result.id, "resumed": result.resumed})
        elif result.resumed:
            print(f"signal `{name}` delivered; {found} resumed")
        else:
            print(f"signal `{name}` stored until a node of {found} waits for it")
        if not as_json and not owned:
            print_notice("No process is running executions now: this one resumes with the next `rune run`.")
        return 0

    raise typer.Exit(run_on_execution(execution, work, as_json=as_json))


def retry(
    execution: Id,
    failed_items: Annotated[
        bool, typer.Option("--failed-items", help="Run only the failed items of splits again.")
    ] = False,
    split: Annotated[
        str | None, typer.Option("--split", metavar="NODE", help="Only failed items of this split.")
    ] = None,
    item: Annotated[
        str | None,
        typer.Option("--item", help="Only failed items within this item, for example `users:5`."),
    ] = None,
    code: Annotated[
        str | None, typer.Option("--code", help="Only items in which a node failed with this error code.")
    ] = None,
    key: Key = None,
    wait: Wait = False,
    ignore_failed_items: IgnoreFailedItems = False,
    as_json: Json = False,
) -> None:
    """Run the failed nodes of an execution again, in a new execution.

    Nodes that failed, were cancelled or did not end run again. The results of
    the others are reused. Prints the id of the new execution.

    Exit codes: 0 started; 1 the execution has not ended, or has nothing to run
    again; with --wait those of `rune run`.

    Examples:
      rune retry x019a --failed-items --wait
      rune retry x019a --split lines --code HTTP_TIMEOUT
    """

    async def work(found: str, settings: Settings) -> int:
        idempotency_key = key or new_execution_id()
        return await start_execution(
            settings,
            lambda service: service.executions.retry(
                found, failed_items=failed_items, split=split, item=item, code=code, key=idempotency_key
            ),
            wait=wait,
            as_json=as_json,
            ignore_failed_items=ignore_failed_items,
        )

    raise typer.Exit(run_on_execution(execution, work, as_json=as_json))


def rerun(
    execution: Id,
    node: FirstNode,
    item: Item = None,
    input: NodeInput = None,
    parameters: Parameters = None,
    version: OtherVersion = None,
    file: EditedFile = None,
    pins: PinOptions = None,
    outlets: OutletOptions = None,
    key: Key = None,
    wait: Wait = False,
    ignore_failed_items: IgnoreFailedItems = False,
    as_json: Json = False,
) -> None:
    """Run a node and everything after it again, in a new execution.

    The results of all other nodes are reused. Prints the id of the new execution.
    --input and --parameters change the data of the node. --version selects another
    version of the workflow, --file an edited one; nodes that are new or differently
    connected there run too.

    Examples:
      rune rerun x019a --from mail
      rune rerun x019a --from fetch --item users:5 --wait
      rune rerun x019a --from price --input '{"amount": 7}'
      rune rerun x019a --from mail --file order.yaml
    """

    async def work(found: str, settings: Settings) -> int:
        idempotency_key = key or new_execution_id()
        payload = None if input is None else value_of(input, "--input")
        changed = None if parameters is None else value_of(parameters, "--parameters")
        given = pins_of(pins, outlets)
        definition = None if file is None else _definition_of(file)
        return await start_execution(
            settings,
            lambda service: service.executions.rerun(
                found,
                node,
                item=item,
                key=idempotency_key,
                input=payload,
                parameters=changed,
                version=version,
                definition=definition,
                pins=given,
            ),
            wait=wait,
            as_json=as_json,
            ignore_failed_items=ignore_failed_items,
        )

    raise typer.Exit(run_on_execution(execution, work, as_json=as_json))


def _definition_of(file: str) -> bytes:
    """Return the definition in a file; the service that runs it checks it against its node types."""
    parsed = read_document(file)
    if parsed.definition is None or parsed.refused:
        raise InvalidDocumentError(parsed.problems)
    return canonical(parsed.definition)
