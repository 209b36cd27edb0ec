"""Permissions: the rights of each role, the workflows in the scope of a key, and the grants of a credential."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal, get_args

import msgspec

Right = Literal["self", "inbox", "signal", "view", "run", "edit", "admin", "hook", "page"]
"""The right that a route requires. `self`: read one's own rights and begin a session; every role has it. `inbox`: read
what waits for a signal. `signal`: send one. `view`: read everything. `run`: start and control executions. `edit`:
change definitions. `admin`: change keys and credentials. `hook`: none, as the webhook authenticates requests. `page`:
none."""

Role = Literal["viewer", "approver", "runner", "editor", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)

RIGHTS: dict[Role, frozenset[Right]] = {
    "viewer": frozenset({"self", "inbox", "view"}),
    "approver": frozenset({"self", "inbox", "signal"}),
    "runner": frozenset({"self", "inbox", "signal", "view", "run"}),
    "editor": frozenset({"self", "inbox", "signal", "view", "run", "edit"}),
    "admin": frozenset({"self", "inbox", "signal", "view", "run", "edit", "admin"}),
}
"""The rights of each role. A right that is not listed is denied."""

LOCAL = "local"
"""Principal of local access: the command line on the stores, and loopback requests while no API key exists."""

BOOTSTRAP = "bootstrap"
"""Principal of the API key in the settings."""

QUEUE = "queue"
"""Principal of executions that are started by a broker message."""

EVERYONE = "everyone"
"""Grant for all principals except the queue."""

DEFAULT_GRANTS = frozenset({EVERYONE})

_SCOPE = re.compile(r"[A-Za-z0-9_*-]{1,128}")
_GRANT = re.compile(r"everyone|queue|local|bootstrap|(?:key|trigger|handler|workflow):[A-Za-z0-9_*-]{1,128}")


class Principal(msgspec.Struct, frozen=True):
    """The authenticated caller. Without scopes it has access to all workflows."""

    name: str
    role: Role
    scopes: tuple[str, ...] = ()

    def may(self, right: Right) -> bool:
        return right in RIGHTS[self.role]

    def sees(self, workflow: str) -> bool:
        """Return whether a workflow is within the scopes."""
        return covers(self.scopes, workflow)


LOCAL_PRINCIPAL = Principal(LOCAL, "admin")


def fits(pattern: str, text: str) -> bool:
    """Return whether a text matches a pattern; `*` matches any text, including none."""
    first, *rest = pattern.split("*")
    if not rest:
        return text == pattern
    if not text.startswith(first):
        return False
    place = len(first)
    for part in rest[:-1]:
        found = text.find(part, place)
        if found < 0:
            return False
        place = found + len(part)
    return len(text) - place >= len(rest[-1]) and text.endswith(rest[-1])


def covers(scopes: Collection[str], workflow: str) -> bool:
    """Return whether a workflow is within scopes; without scopes each is."""
    return not scopes or any(fits(each, workflow) for each in scopes)


def may_call(scopes: Collection[str], caller: str, child: str, callable_by: Collection[str]) -> bool:
    """Return whether an execution of the workflow `caller` with these scopes may start this child, whose definition
    lists its callers in `callable_by`."""
    return covers(scopes, child) or any(fits(each, caller) for each in callable_by)


def is_scope(text: str) -> bool:
    """Return whether a text is a valid scope: a workflow id that may contain `*`."""
    return _SCOPE.fullmatch(text) is not None


def is_grant(text: str) -> bool:
    """Return whether a text names a principal or workflow that a credential can be granted to."""
    return _GRANT.fullmatch(text) is not None


def permits(grants: Collection[str], principal: str, workflow: str, *, stored: bool) -> bool:
    """Return whether an execution that this principal started may use a credential with these grants.

    Grants to a workflow apply to its stored versions only: an inline definition can claim any workflow id.
    """
    for each in grants:
        if each == EVERYONE:
            if principal != QUEUE:
                return True
        elif each.startswith("workflow:"):
            if stored and fits(each.removeprefix("workflow:"), workflow):
                return True
        elif fits(each, principal):
            return True
    return False
