"""Sealing: a credential as a table has it, and what is open to read beside the seal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rune.adapters.keyring import KeyRing
from rune.ports.secret import AnyFields, Credential, Draft, Listing, Unreadable, fields_of


class Content(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is sealed. Name and hosts are in it as well: altered beside the seal they would lead values astray."""

    name: str
    fields: AnyFields
    hosts: tuple[str, ...] = ()


class Shown(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is written beside the seal, for lists."""

    fields: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


class Sealed(msgspec.Struct, frozen=True):
    """One credential as the table has it."""

    id: str
    name: str
    type: str
    version: int
    key: str
    sealed: bytes
    shown: bytes
    created_at: int
    changed_at: int

    @property
    def bound(self) -> bytes:
        """What the seal is tied to."""
        return f"{self.id}\0{self.type}\0{self.version}".encode()


_ENCODER = msgspec.msgpack.Encoder()
_CONTENT = msgspec.msgpack.Decoder(Content)
_SHOWN = msgspec.msgpack.Decoder(Shown)


def opened(ring: KeyRing, row: Sealed) -> Content:
    try:
        content = _CONTENT.decode(ring.open(row.key, row.sealed, row.bound))
    except msgspec.DecodeError:
        raise Unreadable("it was written by a newer Rune") from None
    if content.name != row.name or str(content.fields.__struct_config__.tag) != row.type:
        raise Unreadable("what is stored was altered")
    return content


def seal(ring: KeyRing, row: Sealed, fields: AnyFields, hosts: tuple[str, ...]) -> Sealed:
    key, sealed = ring.seal(_ENCODER.encode(Content(row.name, fields, hosts)), row.bound)
    given: dict[str, Any] = msgspec.to_builtins(fields)
    names = given["values"] if row.type == "custom" else given.keys() - {"type"}
    shown = _ENCODER.encode(Shown(tuple(sorted(names)), hosts))
    return msgspec.structs.replace(row, key=key, sealed=sealed, shown=shown)


def first(ring: KeyRing, draft: Draft) -> Sealed:
    """A credential that is new."""
    type = str(draft.fields.__struct_config__.tag)
    row = Sealed(draft.id, draft.name, type, 1, "", b"", b"", draft.at, draft.at)
    return seal(ring, row, draft.fields, draft.hosts)


def rotated(
    ring: KeyRing, old: Sealed, values: Mapping[str, Any], hosts: tuple[str, ...] | None, at: int
) -> Sealed:
    """A credential with new values; None: the hosts that it has."""
    fields, kept = _changed(ring, old, values)
    new = msgspec.structs.replace(old, version=old.version + 1, changed_at=at)
    return seal(ring, new, fields, kept if hosts is None else hosts)


def resealed(ring: KeyRing, rows: Iterable[Sealed]) -> list[Sealed]:
    """Those that an older key seals, sealed with the newest."""
    return [_resealed(ring, row) for row in rows if row.key != ring.names[0]]


def _resealed(ring: KeyRing, row: Sealed) -> Sealed:
    try:
        content = opened(ring, row)
    except Unreadable as error:
        raise Unreadable(f"`{row.name}`: {error.message}; nothing was changed") from None
    return seal(ring, row, content.fields, content.hosts)


def _changed(ring: KeyRing, old: Sealed, values: Mapping[str, Any]) -> tuple[AnyFields, tuple[str, ...]]:
    """The fields after a change. What cannot be opened any more can still be replaced as a whole."""
    try:
        content = opened(ring, old)
    except Unreadable:
        return fields_of(old.type, values), _SHOWN.decode(old.shown).hosts
    before: dict[str, Any] = msgspec.to_builtins(content.fields)
    before.pop("type", None)
    if old.type == "custom":
        before = before["values"]
    return fields_of(old.type, {**before, **values}), content.hosts


def credential_of(ring: KeyRing, row: Sealed) -> Credential:
    content = opened(ring, row)
    return Credential(
        id=row.id,
        name=row.name,
        type=row.type,
        version=row.version,
        fields=content.fields,
        hosts=content.hosts,
    )


def listing_of(row: Sealed) -> Listing:
    shown = _SHOWN.decode(row.shown)
    return Listing(
        id=row.id,
        name=row.name,
        type=row.type,
        version=row.version,
        fields=shown.fields,
        hosts=shown.hosts,
        key=row.key,
        created_at=row.created_at,
        changed_at=row.changed_at,
    )
