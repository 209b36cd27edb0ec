"""The values of a credential, from where nobody looks over the shoulder: a prompt, a file, or standard input.

They are never taken from the command line, which every process of the machine can read.
"""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Any

import msgspec

from rune.core.jsontext import decode_json
from rune.ports.secret import TYPES, Fields, SecretError, secret_names

MOST_BYTES = 1024 * 1024
MOST_DEPTH = 5


class NotHere(SecretError):
    """A secret was written into the arguments."""

    code = "SECRET_IN_ARGUMENTS"


def values_of(
    type: str, fields: list[str], source: str | None, *, only_given: bool = False
) -> dict[str, Any]:
    """The values of a credential of this type. `only_given`: what is absent need not be asked for."""
    kind = TYPES.get(type)
    if kind is None:
        raise SecretError(f"`{type[:40]}` is no type of credential; there are {', '.join(TYPES)}")
    given: dict[str, Any] = _open_fields(kind, type, fields)
    if source is not None:
        return given | _from_text(_read(source), kind, type, source)
    if only_given:
        return given
    if type == "custom":
        raise SecretError("the values of a custom credential come from --from-file, as a JSON object")
    if not sys.stdin.isatty():
        return given | _from_text(_read("-"), kind, type, "standard input")
    return given | _asked(kind, given)


def _open_fields(kind: type[Fields], type: str, fields: list[str]) -> dict[str, Any]:
    """What may be seen, `name=value`."""
    hidden = secret_names(kind)
    found: dict[str, Any] = {}
    for each in fields:
        name, equals, value = each.partition("=")
        if name in hidden or type == "custom":
            raise NotHere(
                f"`{name[:60]}` is secret and is not taken from the command line, where others can read it"
            )
        if not equals or name not in kind.__struct_fields__:
            known = [every for every in kind.__struct_fields__ if every not in hidden]
            raise SecretError(f"--field: name=value, where name is one of {', '.join(known)}")
        found[name] = value
    return found


def _read(source: str) -> str:
    try:
        if source == "-":
            data = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with Path(source).open("rb") as file:
                data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise SecretError(f"{source}: {(error.strerror or str(error)).lower()}", code="UNREADABLE") from None
    if len(data) > MOST_BYTES:
        raise SecretError(f"{source}: more than {MOST_BYTES:,} bytes", code="TOO_LARGE")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise SecretError(f"{source}: not UTF-8 text", code="NOT_TEXT") from None


def _from_text(text: str, kind: type[Fields], type: str, source: str) -> dict[str, Any]:
    """A JSON object of fields; or, where a type has one secret, that secret alone on a line."""
    hidden = secret_names(kind)
    if not text.lstrip().startswith("{") and type != "custom" and len(hidden) == 1:
        alone = text.removesuffix("\n").removesuffix("\r")
        if not alone:
            raise SecretError(f"{source}: there is nothing")
        return {hidden[0]: alone}
    found = decode_json(text.encode(), max_bytes=MOST_BYTES, max_depth=MOST_DEPTH)
    if found.problems or not isinstance(found.value, dict):
        # The parser's own message could quote what it read.
        raise SecretError(f"{source}: a JSON object of fields is expected", code="NOT_JSON")
    values: dict[str, Any] = found.value
    if values.get("type") == type:
        del values["type"]
    return values


def _asked(kind: type[Fields], given: dict[str, Any]) -> dict[str, Any]:
    """Ask on the terminal for what is secret, without echo, and for what else must be there."""
    hidden = secret_names(kind)
    required = {each.name for each in msgspec.structs.fields(kind) if each.required}
    answers: dict[str, Any] = {}
    for name in kind.__struct_fields__:
        if name in given or (name not in hidden and name not in required):
            continue
        answers[name] = getpass.getpass(f"{name}: ") if name in hidden else _typed(name)
    return {name: value for name, value in answers.items() if value or name in required}


def _typed(name: str) -> str:
    """An answer that may be seen; the question does not go where documents are printed."""
    print(f"{name}: ", end="", file=sys.stderr, flush=True)
    return input()
