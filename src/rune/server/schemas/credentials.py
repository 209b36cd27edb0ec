"""Credentials as the API shows them, without their secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rune.ports.credentials import CredentialSummary

if TYPE_CHECKING:
    pass
from rune.server.schemas.base import View, moment


class CredentialView(View, frozen=True, kw_only=True):
    """A credential without its values. `key` is the name of its encryption key. `insecure` is null in credentials of
    older versions, which are sent over connections of any kind."""

    id: str
    name: str
    type: str
    version: int
    fields: list[str]
    hosts: list[str]
    insecure: bool | None
    key: str
    created_at: str
    changed_at: str


def credential_view(each: CredentialSummary) -> CredentialView:
    return CredentialView(
        id=each.id,
        name=each.name,
        type=each.type,
        version=each.version,
        fields=list(each.fields),
        hosts=list(each.hosts),
        insecure=each.insecure,
        key=each.key,
        created_at=moment(each.created_at),
        changed_at=moment(each.changed_at),
    )
