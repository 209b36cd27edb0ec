"""The permission of every route: checked when the application is built, and printed as a table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.routing import BaseRoute

from rune.core.permissions import RIGHTS, ROLES, Right
from rune.server.auth import Permission, UndeclaredPermissionError
from rune.server.routing import ApiRoute

OPEN = {"hook": re.compile("/hooks/.+"), "page": re.compile("/|/docs|/(static|assets)/.+")}
"""Paths of the routes without an API key: webhooks, which verify a secret themselves, and the files of the pages."""
KNOWN = frozenset(OPEN).union(*RIGHTS.values())
NO_KEY = "none"
PRINCIPALS: tuple[str, ...] = (NO_KEY, *ROLES)


def permission_of(route: BaseRoute) -> Right | None:
    """Return the right that a route requires; None if it declares no permission."""
    dependencies = route.dependant.dependencies if isinstance(route, APIRoute | APIWebSocketRoute) else ()
    for each in dependencies:
        if isinstance(each.call, Permission):
            return each.call.right
    return None


def check_declared(routes: Iterable[BaseRoute], exempt: Iterable[Any]) -> None:
    """Raise if a route declares no permission or skips authentication. `exempt` lists endpoint objects, because another
    route could have the same name."""
    free = [id(each) for each in exempt]
    for route in routes:
        if not isinstance(route, APIRoute | APIWebSocketRoute):
            raise UndeclaredPermissionError(f"{route} is not an API route, so it skips authentication")
        if id(route.endpoint) in free:
            continue
        permission = permission_of(route)
        if permission not in KNOWN:
            raise UndeclaredPermissionError(f"{route.path} declares no permission")
        if isinstance(route, APIRoute) and not isinstance(route, ApiRoute):
            raise UndeclaredPermissionError(f"{route.path} reads its body before it checks its permission")
        for right, place in OPEN.items():
            if (permission == right) != bool(place.fullmatch(route.path)):
                raise UndeclaredPermissionError(f"{route.path}: `{right}` is reserved for {place.pattern}")


def allowed(permission: Right | None, role: str) -> bool:
    """Whether a role, or `none` for a request without a key, may use a route. None as permission means public."""
    if permission is None or permission in OPEN:
        return True
    return any(name == role and permission in rights for name, rights in RIGHTS.items())


def rows(routes: list[BaseRoute]) -> Iterator[tuple[str, str, Right | None]]:
    """Yield the method, path and permission of every route."""
    for route in routes:
        if isinstance(route, APIWebSocketRoute):
            yield "WebSocket", route.path, permission_of(route)
        elif isinstance(route, APIRoute):
            for method in sorted(route.methods or ()):
                yield method, route.path, permission_of(route)


def table(routes: list[BaseRoute]) -> str:
    """Return the matrix of routes and roles in Markdown."""
    lines = [
        f"| request | right | {' | '.join(PRINCIPALS)} |",
        f"|---|---|{'---|' * len(PRINCIPALS)}",
    ]
    for method, path, permission in sorted(rows(routes), key=lambda row: (row[1], row[0])):
        marks = " | ".join("yes" if allowed(permission, role) else "" for role in PRINCIPALS)
        lines.append(f"| `{method} {path}` | {permission or ''} | {marks} |")
    return "\n".join(lines)
