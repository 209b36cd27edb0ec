"""API keys, start limits, principals and the audit log."""

from __future__ import annotations

from typing import Annotated, Literal

from rune.api.base import Known, View, absent
from rune.core.permissions import Role


class EntryView(View, frozen=True, kw_only=True):
    """A requested change, or a refused request (`access.refused`). `outcome` is `asked`; a rejected change has a second
    entry whose outcome is the error code, and one that has made something, such as a version, a second one with `done`.
    `address` and `request_id` are those of the request over HTTP."""

    number: int
    at: str
    actor: str
    action: str
    target: str
    details: dict[str, str] = absent({})
    outcome: str = absent("")
    address: str = absent("")
    request_id: str = absent("")


class EntryPage(View, frozen=True, kw_only=True):
    """A page of the audit log, newest first; with `after` oldest first."""

    entries: list[EntryView]
    next: str | None = absent(None)


class LimitsView(View, frozen=True, kw_only=True):
    """Start limits; null means unlimited."""

    rate: str | None = absent(default=None)
    burst: int | None = absent(default=None)
    running: int | None = absent(default=None)
    waiting: int | None = absent(default=None)


class KeyView(View, frozen=True, kw_only=True):
    """A key without its secret. `used_at` is accurate to a minute."""

    id: str
    name: str
    role: Annotated[str, Known(Role)]
    workflows: list[str]
    created_at: str
    created_by: str
    expires_at: str | None = absent(None)
    revoked_at: str | None = absent(None)
    used_at: str | None = absent(None)
    limits: LimitsView = absent(LimitsView())


class NewKey(KeyView, frozen=True, kw_only=True):
    """A key with its secret, which is returned only once."""

    key: str


class KeyList(View, frozen=True, kw_only=True):
    """All keys, oldest first, including revoked ones."""

    keys: list[KeyView]


class Me(View, frozen=True, kw_only=True):
    """The principal of a request, and how it was authenticated. `expires_at` is the end of its session."""

    principal: str
    role: Annotated[str, Known(Role)]
    rights: list[str]
    workflows: list[str]
    authentication: Annotated[str, Known(Literal["none", "key", "session"])] = absent("key")
    expires_at: str | None = absent(None)
