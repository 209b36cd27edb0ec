"""Rights: which role may do what, what a key's scope takes in, and who may use a credential."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal, get_args

import msgspec

Right = Literal["view", "run", "edit", "admin", "hook", "page"]
"""What a route lets one do: look, start and steer executions, change definitions, change keys and credentials. `hook`:
whoever knows the path and can prove the rest, whatever key they have. `page`: files that tell nothing of anybody."""

Role = Literal["viewer", "runner", "editor", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)

RIGHTS: dict[Role, frozenset[Right]] = {
    "viewer": frozenset({"view"}),
    "runner": frozenset({"view", "run"}),
    "editor": frozenset({"view", "run", "edit"}),
    "admin": frozenset({"view", "run", "edit", "admin"}),
}
"""The whole table. What is not in it is refused."""

LOCAL = "local"
"""Whoever works on the machine itself: the command line over the stores, and a loopback without keys."""

BOOTSTRAP = "bootstrap"
"""Whoever has the key that is configured."""

QUEUE = "queue"
"""Whoever can write to the broker."""

EVERYONE = "everyone"
"""Of grants: all principals but the queue."""

DEFAULT_GRANTS = frozenset({EVERYONE})

_SCOPE = re.compile(r"[A-Za-z0-9_*-]{1,128}")
_GRANT = re.compile(r"everyone|queue|local|bootstrap|(?:key|trigger|workflow):[A-Za-z0-9_*-]{1,128}")


class Principal(msgspec.Struct, frozen=True):
    """Somebody who asks. Without scopes all workflows are theirs to see."""

    name: str
    role: Role
    scopes: tuple[str, ...] = ()

    def may(self, right: Right) -> bool:
        """Whether the role has the right."""
        return right in RIGHTS[self.role]

    def sees(self, workflow: str) -> bool:
        """Whether a workflow is within the scopes."""
        return not self.scopes or any(fits(each, workflow) for each in self.scopes)


LOCAL_PRINCIPAL = Principal(LOCAL, "admin")


def fits(pattern: str, text: str) -> bool:
    """Whether a text is what a pattern says; `*` stands for anything, also for nothing."""
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


def is_scope(text: str) -> bool:
    """Whether this names workflows: an id, perhaps with `*`."""
    return _SCOPE.fullmatch(text) is not None


def is_grant(text: str) -> bool:
    """Whether this names somebody, or a workflow, that a credential can be granted to."""
    return _GRANT.fullmatch(text) is not None


def permits(grants: Collection[str], principal: str, workflow: str, *, stored: bool) -> bool:
    """Whether a credential with these grants may be used by an execution that this principal started. Grants to a
    workflow count for its stored versions only: anybody can call a definition of their own by its name."""
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
