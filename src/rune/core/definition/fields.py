"""Readers of single fields of a document. Each returns the value, or reports a problem and returns None."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

from rune.core.definition import problems as codes
from rune.core.definition.model import ErrorPolicy, HookHandler, HookStatus, Pin, Retry, Settings
from rune.core.definition.problems import Problem, did_you_mean
from rune.core.permissions import is_scope

Reader = Callable[[Any, str, list[Problem]], Any]

ID = re.compile(r"[A-Za-z0-9_-]+\Z")
MAX_ID_LENGTH = 128
_YEAR_S = 366 * 24 * 3600.0


def kind_of(value: Any) -> str:
    """Return the type of plain data as messages name it."""
    if isinstance(value, bool):
        return "a boolean"
    names = {str: "text", dict: "an object", list: "a list", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def wrong_type(value: Any, expected: str, path: str, problems: list[Problem]) -> None:
    problems.append(Problem(path, codes.WRONG_TYPE, f"{expected} expected, found {kind_of(value)}"))


def text(value: Any, path: str, problems: list[Problem]) -> str | None:
    if isinstance(value, str):
        return value
    wrong_type(value, "text", path, problems)
    return None


def word(value: Any, path: str, problems: list[Problem]) -> str | None:
    """Read text that is not empty."""
    found = text(value, path, problems)
    if found == "":
        problems.append(Problem(path, codes.WRONG_VALUE, "is empty"))
        return None
    return found


def identifier(value: Any, path: str, problems: list[Problem]) -> str | None:
    """Read an id. An invalid one is reported and returned, so that references to it still resolve."""
    found = word(value, path, problems)
    if found is None or (ID.match(found) and len(found) <= MAX_ID_LENGTH):
        return found
    hint = f"for example `{slug(found)}`" if slug(found) else "for example `step_1`"
    shown = found if len(found) <= 60 else found[:57] + "…"
    message = f"`{shown}` is not an id: letters, digits, `_` and `-`, at most {MAX_ID_LENGTH}"
    problems.append(Problem(path, codes.BAD_ID, message, hint))
    return found


def flag(value: Any, path: str, problems: list[Problem]) -> bool | None:
    if isinstance(value, bool):
        return value
    wrong_type(value, "true or false", path, problems)
    return None


def anything(value: Any, path: str, problems: list[Problem]) -> Any:
    """Accept any value."""
    return value


def mapping(value: Any, path: str, problems: list[Problem]) -> dict[str, Any] | None:
    if isinstance(value, dict):
        return value
    wrong_type(value, "an object", path, problems)
    return None


def texts(value: Any, path: str, problems: list[Problem]) -> tuple[str, ...] | None:
    """Read a list of texts. Other elements are reported and omitted."""
    if not isinstance(value, list):
        wrong_type(value, "a list", path, problems)
        return None
    found = [word(each, f"{path}[{at}]", problems) for at, each in enumerate(value)]
    return tuple(each for each in found if each is not None)


def scopes(value: Any, path: str, problems: list[Problem]) -> tuple[str, ...] | None:
    """Read a list of workflow ids that may contain `*`. Other elements are reported and omitted."""
    found = texts(value, path, problems)
    for at, each in enumerate(found or ()):
        if not is_scope(each):
            message = f"`{each[:60]}` is not the id of a workflow; `*` stands for any characters"
            problems.append(Problem(f"{path}[{at}]", codes.BAD_ID, message))
    return None if found is None else tuple(each for each in found if is_scope(each))


def one_of(*allowed: str) -> Reader:
    """Return a reader of one of these words."""

    def read(value: Any, path: str, problems: list[Problem]) -> str | None:
        if isinstance(value, str) and value in allowed:
            return value
        expected = "one of " + ", ".join(f"`{each}`" for each in allowed)
        if not isinstance(value, str):
            wrong_type(value, expected, path, problems)
            return None
        problems.append(
            Problem(
                path, codes.WRONG_VALUE, f"{expected} expected, found `{value}`", did_you_mean(value, allowed)
            )
        )
        return None

    return read


def number(least: float, most: float, *, whole: bool = False, above: bool = False) -> Reader:
    """Return a reader of a number within bounds; `above`: the lower bound is exclusive."""
    name = "a whole number" if whole else "a number"
    bound = f"more than {least:,.15g}" if above else f"at least {least:,.15g}"

    def read(value: Any, path: str, problems: list[Problem]) -> float | None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            wrong_type(value, name, path, problems)
            return None
        if whole and value != int(value):
            problems.append(Problem(path, codes.WRONG_VALUE, f"a whole number expected, found {value}"))
            return None
        if not (least < value if above else least <= value) or value > most:
            message = f"{value:,.15g} is out of range: {bound}, at most {most:,.15g}"
            problems.append(Problem(path, codes.WRONG_VALUE, message))
            return None
        return int(value) if whole else float(value)

    return read


duration = number(0, _YEAR_S, above=True)
delay = number(0, _YEAR_S)

_RETRY_READERS: Mapping[str, Reader] = {
    "max_attempts": number(1, 1000, whole=True),
    "initial_delay": delay,
    "backoff": number(1, 100),
    "max_delay": delay,
    "jitter": flag,
    "on": texts,
}


def handler(value: Any, path: str, problems: list[Problem]) -> HookHandler | None:
    """Read the handler of a hook: the id of a workflow, `none`, or an object."""
    found = {"workflow": value} if isinstance(value, str) else value
    read = fields(found, _HANDLER_READERS, path, problems)
    if read is None:
        return None
    if "workflow" not in read:
        if "workflow" not in found:
            problems.append(Problem(path, codes.MISSING_FIELD, "`workflow` is required"))
        return None
    return HookHandler(**read)


def _plain_handler(value: Any, path: str, problems: list[Problem]) -> HookHandler | None:
    """Read the handler of late or missing executions, which have no status."""
    read = handler(value, path, problems)
    if isinstance(value, dict) and "statuses" in value:
        problems.append(unknown_field("statuses", ("workflow", "version"), path))
    return read


def _version(value: Any, path: str, problems: list[Problem]) -> int | str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return word(value, path, problems)


def _statuses(value: Any, path: str, problems: list[Problem]) -> tuple[str, ...] | None:
    read = one_of(*get_args(HookStatus))
    listed = texts(value, path, problems)
    if listed is None:
        return None
    found = [read(each, f"{path}[{at}]", problems) for at, each in enumerate(listed)]
    return tuple(dict.fromkeys(each for each in found if each is not None))


_HANDLER_READERS: Mapping[str, Reader] = {
    "workflow": identifier,
    "version": _version,
    "statuses": _statuses,
}

_SETTINGS_READERS: Mapping[str, Reader] = {
    "timeout": duration,
    "join_timeout": delay,
    "max_parallel": number(1, 1_000_000, whole=True),
    "priority": number(0, 10, whole=True),
    "executor": one_of("rune", "legacy"),
    "callable_by": scopes,
    "on_failure": handler,
    "expect_within": duration,
    "on_late": _plain_handler,
    "expect_every": number(1, _YEAR_S),
    "on_missing": _plain_handler,
}

_ERROR_READERS: Mapping[str, Reader] = {"type": one_of("halt", "ignore", "branch"), "error_edge": word}

_PIN_READERS: Mapping[str, Reader] = {"output": anything, "outlet": word}

_CREDENTIALS_READERS: Mapping[str, Reader] = {"id": word, "name": word, "type": word}


def fields(
    value: Any, readers: Mapping[str, Reader], path: str, problems: list[Problem]
) -> dict[str, Any] | None:
    """Read the fields of an object, each with its reader; null counts as absent."""
    if not isinstance(value, dict):
        hint = "" if path else "a workflow is an object with `nodes` and `edges`"
        message = f"an object expected, found {kind_of(value)}"
        problems.append(Problem(path, codes.WRONG_TYPE, message, hint))
        return None
    found: dict[str, Any] = {}
    unknown = 0
    for key, each in value.items():
        reader = readers.get(key)
        if reader is None:
            unknown += 1
            if unknown <= MAX_UNKNOWN:
                problems.append(unknown_field(key, readers, path))
        elif each is not None:
            read = reader(each, f"{path}.{key}" if path else key, problems)
            if read is not None:
                found[key] = read
    if unknown > MAX_UNKNOWN:
        message = f"{unknown - MAX_UNKNOWN:,} more unknown fields; {MAX_UNKNOWN} are listed"
        problems.append(Problem(path, codes.UNKNOWN_FIELD, message))
    return found


MAX_UNKNOWN = 100
"""Unknown fields of an object that are listed. Each is compared with all known ones."""


def unknown_field(key: str, known: Iterable[str], path: str) -> Problem:
    where = f"{path}.{key}" if path else key
    return Problem(where, codes.UNKNOWN_FIELD, f"unknown field `{key}`", did_you_mean(key, known))


def retry(value: Any, path: str, problems: list[Problem]) -> Retry | None:
    found = fields(value, _RETRY_READERS, path, problems)
    return None if found is None else Retry(**found)


def settings(value: Any, path: str, problems: list[Problem]) -> Settings | None:
    found = fields(value, _SETTINGS_READERS, path, problems)
    return None if found is None else Settings(**found)


def error_policy(value: Any, path: str, problems: list[Problem]) -> ErrorPolicy | None:
    """Read an error policy: an object, or only its type."""
    if isinstance(value, str):
        policy = _ERROR_READERS["type"](value, path, problems)
        return None if policy is None else ErrorPolicy(type=policy)
    found = fields(value, _ERROR_READERS, path, problems)
    if found is None:
        return None
    if "type" not in found:
        if "type" not in value:
            problems.append(
                Problem(path, codes.MISSING_FIELD, "`type` is required", "one of `halt`, `ignore`, `branch`")
            )
        return None
    return ErrorPolicy(**found)


def pin(value: Any, path: str, problems: list[Problem]) -> Pin | None:
    """Read the output of a pinned node."""
    found = fields(value, _PIN_READERS, path, problems)
    return None if found is None else Pin(**found)


def credentials(value: Any, path: str, problems: list[Problem]) -> dict[str, Any] | None:
    """Read a reference to a credential. Other fields are rejected: a secret would be stored in the document."""
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, dict):
        wrong_type(value, 'a reference such as `{"name": …}`', path, problems)
        return None
    for key in value.keys() - _CREDENTIALS_READERS.keys():
        message = f"`{key}` must not be part of a document"
        problems.append(
            Problem(
                f"{path}.{key}", codes.SECRET_IN_DOCUMENT, message, "store the credential and name it here"
            )
        )
    found = fields(
        {key: value[key] for key in value if key in _CREDENTIALS_READERS},
        _CREDENTIALS_READERS,
        path,
        problems,
    )
    if not value.keys() & {"id", "name"}:
        problems.append(Problem(path, codes.MISSING_FIELD, "`name` or `id` is required"))
    return found


def slug(name: str) -> str:
    """Make a valid id from any text; empty if no character is usable."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")[:64].rstrip("-")
