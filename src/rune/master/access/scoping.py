"""Scoping: what lies outside of the workflows of a key is not there for whoever asks with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from starlette.requests import HTTPConnection

from rune.core.rights import Principal
from rune.errors import RuneError
from rune.master.problems import ApiError
from rune.ports.journal import Accepted
from rune.ports.library import LATEST, unknown
from rune.runtime.books import UnknownExecution
from rune.runtime.planbook import UnknownDefinition

if TYPE_CHECKING:
    from rune.master.service import Master


class UnknownLetter(RuneError):
    """No dead letter has this id."""

    code = "UNKNOWN_DEAD_LETTER"


class _Named(msgspec.Struct):
    id: str = ""


async def check_scope(connection: HTTPConnection, principal: Principal) -> None:
    """Refuse a path that leads outside, in the words of what is not there at all."""
    if not principal.scopes:
        return
    master: Master = connection.app.state.master
    for name, value in connection.path_params.items():
        if name == "workflow" and not principal.sees(value):
            raise unknown(value, (), LATEST)
        if name in {"execution", "other", "letter"}:
            await _check_execution(master, principal, value, _absent(connection, name, value))
        if name == "hash":
            await _check_definition(master, principal, value)


def _absent(connection: HTTPConnection, name: str, id: str) -> RuneError:
    if name == "letter" and connection.scope.get("method") == "DELETE":
        return unknown_letter(id)
    return UnknownExecution(f"no execution has the id {id}")


def unknown_letter(id: str) -> UnknownLetter:
    """Why a dead letter cannot be settled."""
    return UnknownLetter(f"`{id}` is no dead letter")


async def _check_execution(master: Master, principal: Principal, id: str, absent: RuneError) -> None:
    accepted: Accepted | None = await master.engine.backend.journal.accepted(id)
    if accepted is not None and not principal.sees(accepted.workflow):
        raise absent


async def _check_definition(master: Master, principal: Principal, hash: str) -> None:
    data = await master.reader.definition(hash)
    if data is not None and not principal.sees(msgspec.json.decode(data, type=_Named).id):
        raise UnknownDefinition(f"no definition has the hash {hash}")


def check_sees(principal: Principal, workflow: str) -> None:
    """Refuse to store or run, under a name outside, what was brought along."""
    if not principal.sees(workflow):
        raise ApiError(f"this key is not for a workflow `{workflow[:128]}`", code="FORBIDDEN")


def check_definition(principal: Principal, document: bytes) -> None:
    """The same for a document that was not read yet. One that cannot be read is nobody's."""
    if not principal.scopes:
        return
    try:
        named = msgspec.json.decode(document, type=_Named)
    except (msgspec.DecodeError, RecursionError):
        named = _Named()
    check_sees(principal, named.id)
