"""Rows of access as the ports speak of them: keys, grants and entries of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rune.core.rights import DEFAULT_GRANTS
from rune.ports.keys import Key
from rune.ports.log import Entry

_SCOPES = msgspec.json.Decoder(tuple[str, ...])
_GRANTS = msgspec.json.Decoder(frozenset[str])
_DETAILS = msgspec.json.Decoder(dict[str, str])


def key_row(key: Key) -> tuple[object, ...]:
    row = msgspec.structs.astuple(key)
    return (*row[:3], msgspec.json.encode(key.scopes).decode(), *row[4:])


def key_of(row: Sequence[Any]) -> Key:
    names = Key.__struct_fields__
    values = dict(zip(names, row, strict=True))
    return Key(**{**values, "scopes": _SCOPES.decode(values["scopes"]), "digest": bytes(values["digest"])})


def grants_of(text: str | None) -> frozenset[str]:
    return DEFAULT_GRANTS if text is None else _GRANTS.decode(text)


def grants_text(grants: frozenset[str]) -> str:
    return msgspec.json.encode(sorted(grants)).decode()


def entry_row(entry: Entry) -> tuple[object, ...]:
    details = msgspec.json.encode(entry.details).decode()
    return entry.id, entry.at, entry.actor, entry.action, entry.target, details, entry.outcome


def entry_of(row: Sequence[Any]) -> Entry:
    number, id, at, actor, action, target, details, outcome = row
    return Entry(
        number=number,
        id=id,
        at=at,
        actor=actor,
        action=action,
        target=target,
        details=_DETAILS.decode(details),
        outcome=outcome,
    )
