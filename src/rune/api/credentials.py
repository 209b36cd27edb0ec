"""Credentials and their types, without secret values."""

from __future__ import annotations

from typing import Any

from rune.api.base import View, absent


class CredentialView(View, frozen=True, kw_only=True):
    """A credential without its values. `key` is the name of its encryption key. `insecure` is null in credentials of
    older versions, which are sent over connections of any kind."""

    id: str
    name: str
    type: str
    version: int
    fields: list[str]
    hosts: list[str]
    insecure: bool | None = absent(None)
    key: str = absent("")
    created_at: str
    changed_at: str


class CredentialTypeView(View, frozen=True, kw_only=True):
    """A credential type. `fields` is the JSON Schema of its values, `secrets` names those that are never shown, and
    `node_types` are the types whose nodes can use it; types that take any credential are not listed."""

    type: str
    summary: str = absent("")
    fields: dict[str, Any]
    secrets: list[str] = absent([])
    node_types: list[str] = absent([])


class CredentialTypeList(View, frozen=True, kw_only=True):
    """All credential types."""

    credential_types: list[CredentialTypeView]


class CredentialUseView(View, frozen=True, kw_only=True):
    """A version of a workflow, and those of its nodes that refer to the credential."""

    workflow_id: str
    name: str = absent("")
    version: int
    aliases: list[str] = absent([])
    nodes: list[str]


class CredentialUseList(View, frozen=True, kw_only=True):
    """The uses of a credential, ordered by workflow and version."""

    uses: list[CredentialUseView]


class CredentialList(View, frozen=True, kw_only=True):
    """All credentials without values."""

    credentials: list[CredentialView]


class GrantList(View, frozen=True, kw_only=True):
    """The principals that may use a credential."""

    granted: list[str]
