"""Options and arguments that several commands share: idempotency keys, limits, payloads, labels,
filters of executions, and documents.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from rune.core.definition import problems
from rune.core.definition.parser import Parsed, Pins
from rune.core.definition.problems import Problem
from rune.core.definition.strict_json import parse_input
from rune.core.json_decoder import read_json
from rune.core.limits import LIMITS
from rune.core.validation.validate import ValidationResult
from rune.documents.loader import check_document, load_document
from rune.errors import InvalidDocumentError, RuneError
from rune.nodes.registry import full_registry, load_module, standard_catalogue
from rune.ports.retention import parse_duration
from rune.settings import Settings, load_settings


def not_empty(key: str | None) -> str | None:
    """Reject an empty key. An unset shell variable gives one, and would make each start a new one."""
    if key is not None and not key.strip():
        raise typer.BadParameter("the key is empty")
    return key


Nodes = Annotated[
    list[str] | None,
    typer.Option(
        "--nodes", help="Python module with custom nodes, installed or in the current folder. Repeatable."
    ),
]


def with_modules(settings: Settings, names: Sequence[str] | None) -> Settings:
    """Return the settings with the modules that `--nodes` names, which are imported here.

    Only a module named by hand may be in the current folder. A `rune.toml` found there is not trusted to run the code
    beside it, so the modules of the settings are imported before the folder is added to the path.
    """
    if not names:
        return settings
    full_registry(settings.nodes)
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        for name in names:
            load_module(name)
    finally:
        sys.path.remove(here)
        sys.path.append(here)  # for imports inside their functions
    return replace(settings, nodes=(*settings.nodes, *names))


def without_file_modules(settings: Settings) -> Settings:
    """Return the settings without the modules that `rune.toml` names, for commands that only read.

    The file may come with a checkout from anywhere, so reading in its folder runs no code that it names. Modules of
    RUNE_NODES are named by hand and are kept.
    """
    return replace(settings, nodes=()) if settings.nodes_in_file else settings


StartKey = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key",
        callback=not_empty,
        help="Idempotency key: a second start with the same key returns the first execution.",
    ),
]
WorkflowInput = Annotated[
    str, typer.Option("--input", "-i", help="Input of the workflow, as JSON or @FILE.", show_default=False)
]
LabelOptions = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="NAME=VALUE", help="Label of the execution. Repeatable."),
]
IgnoreFailedItems = Annotated[
    bool,
    typer.Option(
        "--ignore-failed-items",
        help="Exit with 0 although items failed that the workflow does not tolerate.",
    ),
]
FakeTime = Annotated[
    bool,
    typer.Option("--fake-time", help="Use a virtual clock for this execution, so that waits take no time."),
]


Rate = Annotated[
    str | None,
    typer.Option("--rate", metavar="N/s|m|h", help="Maximum rate of starts per second, minute or hour."),
]
Burst = Annotated[
    int | None,
    typer.Option("--burst", help="Maximum number of starts at once. Default: the number in --rate."),
]
Running = Annotated[
    int | None, typer.Option("--running", help="Maximum number of executions running at the same time.")
]
RemoveLimits = Annotated[bool, typer.Option("--none", help="Remove all limits.")]


def payload_of(given: str, option: str = "--input") -> bytes:
    """Return the bytes of a payload, given as JSON or @FILE; a file is read up to the size limit."""
    if not given.startswith("@"):
        return given.encode()
    try:
        with Path(given[1:]).open("rb") as file:
            return file.read(LIMITS.payload_bytes + 1)
    except OSError as error:
        raise RuneError(
            f"{option} {given}: {(error.strerror or str(error)).lower()}", code="UNREADABLE"
        ) from error


def value_of(given: str, option: str) -> bytes:
    """Return the bytes of a value, given as JSON or @FILE; raise if it is not valid JSON."""
    data = payload_of(given, option)
    problems = parse_input(data).problems
    if problems:
        raise InvalidDocumentError(tuple(replace(each, path=option) for each in problems))
    return data


def labels_of(given: tuple[str, ...]) -> dict[str, str]:
    """Parse labels of the form name=value."""
    labels: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise RuneError(f"--label {each}: a label has the form name=value", code="BAD_LABEL")
        labels[name] = value
    return labels


PinOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--pin",
        metavar="NODE=JSON",
        help="Use this output, JSON or @FILE, instead of calling the node. Repeatable.",
        show_default=False,
    ),
]
OutletOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--outlet",
        metavar="NODE=OUTLET",
        help="Outlet that a node with --pin takes, if it has several. Repeatable.",
        show_default=False,
    ),
]


def pins_of(given: Sequence[str] | None, outlets: Sequence[str] | None) -> Pins:
    """Parse pinned outputs of the form node=JSON or node=@FILE, and outlets of the form node=outlet."""
    pins = {
        node: read_json(value_of(value, f"--pin {node}"))
        for node, value in _pairs(given or (), "--pin", "node=JSON")
    }
    return Pins(pins, dict(_pairs(outlets or (), "--outlet", "node=outlet")))


def _pairs(given: Sequence[str], option: str, form: str) -> Iterator[tuple[str, str]]:
    for each in given:
        node, equals, value = each.partition("=")
        if not node or not equals or not value:
            raise RuneError(f"{option} {each}: expected {form}", code="BAD_PIN")
        yield node, value


SUFFIXES = ("yaml", "yml", "json")


def examine_file(name: str, modules: Sequence[str] | None) -> ValidationResult:
    """Read and check one document against the installed node types and those of modules that are named by hand."""
    try:
        settings = load_settings()
        known = full_registry(with_modules(without_file_modules(settings), modules).nodes).catalogue
    except RuneError as error:
        return check_document(Parsed(None, (Problem("", error.code, error.message),)), standard_catalogue())
    verdict = check_document(read_document(name), known)
    return _with_module_hint(verdict, settings)


def _with_module_hint(verdict: ValidationResult, settings: Settings) -> ValidationResult:
    """Explain that an unknown type may be one of a module that was not imported: one of `rune.toml`, or any other."""
    options = " ".join(f"--nodes {each}" for each in settings.nodes) if settings.nodes_in_file else ""
    hint = "a type of your own needs `--nodes MODULE`, or its module in RUNE_NODES"
    if options:
        hint = f"the modules of rune.toml are not imported here; use {options}"
    return replace(
        verdict,
        problems=tuple(
            replace(each, hint="; ".join(filter(None, (each.hint, hint))))
            if each.code == problems.UNKNOWN_TYPE and (options or not each.hint.startswith("did you mean"))
            else each
            for each in verdict.problems
        ),
    )


def read_document(name: str) -> Parsed:
    """Read one document from a file, a folder, or standard input (`-`), whose format is detected."""
    if name == "-":
        data = sys.stdin.buffer.read(LIMITS.definition_bytes + 1)
        return load_document(data, _detect_format(data))
    path = Path(name)
    if path.is_dir():
        found = _find_in_folder(path)
        if isinstance(found, Problem):
            return Parsed(None, (found,))
        path = found
    return load_document(path, path.suffix.lstrip(".") or "json")


def _find_in_folder(folder: Path) -> Path | Problem:
    """Find the workflow of a folder: a file named like the folder, or `workflow`."""
    for stem in (folder.resolve().name, "workflow"):
        found = [path for suffix in SUFFIXES if (path := folder / f"{stem}.{suffix}").is_file()]
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(f"`{path.name}`" for path in found)
            return Problem(
                "", problems.CONFLICT, f"the folder contains {names}", "give the path of one of these files"
            )
    expected = f"`{folder.resolve().name}.yaml` or `workflow.yaml` (or .yml, .json)"
    return Problem(
        "", problems.UNREADABLE, f"the folder {folder} contains no workflow", f"expected {expected}"
    )


def _detect_format(data: bytes) -> str:
    return "json" if data.lstrip()[:1] in {b"{", b"["} else "yaml"


class Status(StrEnum):
    """The status of an execution."""

    running = "running"
    paused = "paused"
    completed = "completed"
    failed = "failed"
    halted = "halted"
    cancelled = "cancelled"


Statuses = Annotated[
    list[Status] | None,
    typer.Option(
        "--status",
        "-s",
        help="Only executions with this status; `failed` includes `halted`. Repeatable.",
        show_default=False,
    ),
]
Failed = Annotated[
    bool, typer.Option("--failed", help="The same as --status failed, which includes halted executions.")
]
FailedItems = Annotated[
    bool, typer.Option("--failed-items", help="Only ended executions in which an item of a split failed.")
]
Stuck = Annotated[
    bool,
    typer.Option(
        "--stuck",
        help="Only running executions without progress for 15 minutes that wait for neither a timer nor a signal.",
    ),
]
Workflow = Annotated[str | None, typer.Option("--workflow", "-w", help="Only executions of this workflow.")]
VersionNumber = Annotated[
    int | None,
    typer.Option("--version", min=1, help="Only executions of this version; requires --workflow."),
]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="NAME=VALUE",
        help="Only executions with this label. Repeatable: all labels must match.",
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="AGE", help="Only executions started at most this long ago: 30m, 2h, 7d."
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--until", metavar="AGE", help="Only executions started at least this long ago: 30m, 2h, 7d."
    ),
]
Code = Annotated[str | None, typer.Option("--code", help="Only executions that ended with this error code.")]
StartedBy = Annotated[
    str | None,
    typer.Option("--by", metavar="PRINCIPAL", help="Only executions that this principal started."),
]
Parent = Annotated[
    str | None, typer.Option("--parent", metavar="ID", help="Only children of this execution.")
]
RetryOf = Annotated[
    str | None,
    typer.Option("--retry-of", metavar="ID", help="Only retries and reruns of this execution."),
]


def statuses_of(given: list[Status] | None, *, failed: bool) -> tuple[str, ...]:
    """Return the statuses of --status and --failed, each once."""
    named = [each.value for each in given or ()] + (["failed"] if failed else [])
    return tuple(dict.fromkeys(named))


def ago(age: str | None) -> int | None:
    """Return the start of a time span that ends now, in epoch ms."""
    return None if age is None else time.time_ns() // 1_000_000 - parse_duration(age)
