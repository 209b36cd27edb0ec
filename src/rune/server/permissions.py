"""Declared: a table of routes in which every route says what right it takes, and passes the gate.

The matrix: every route, and which principals may use it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.routing import BaseRoute

from rune.core.permissions import RIGHTS, ROLES, Right
from rune.server.auth import UndeclaredPermissionError, authorize

OPEN = {"hook": re.compile("/hooks/.+"), "page": re.compile("/|/static/.+")}
"""Where routes are that prove in their own way who asks, and those that tell nothing of anybody; nowhere else."""
KNOWN = frozenset(OPEN).union(*RIGHTS.values())


def check_declared(routes: Iterable[BaseRoute], exempt: Iterable[Any]) -> None:
    """Refuse a table with a route that anybody could use by mistake. `exempt` are endpoints themselves: names could be
    imitated."""
    free = [id(each) for each in exempt]
    for route in routes:
        if not isinstance(route, APIRoute | APIWebSocketRoute):
            raise UndeclaredPermissionError(f"{route} is no route that passes the gate")
        if id(route.endpoint) in free:
            continue
        need = getattr(route.endpoint, "need", None)
        if need not in KNOWN:
            raise UndeclaredPermissionError(f"{route.path} does not say what right it takes")
        if authorize not in [each.call for each in route.dependant.dependencies]:
            raise UndeclaredPermissionError(f"{route.path} does not pass the gate")
        for right, place in OPEN.items():
            if (need == right) != bool(place.fullmatch(route.path)):
                raise UndeclaredPermissionError(
                    f"{route.path}: `{right}` is the right of {place.pattern}, and of nothing else"
                )


NOBODY = "none"
PRINCIPALS: tuple[str, ...] = (NOBODY, *ROLES)


def allowed(need: Right | None, who: str) -> bool:
    """Whether somebody of this role, or nobody in particular, passes; `need`: None where everybody does."""
    if need is None or need in OPEN:
        return True
    return any(role == who and need in rights for role, rights in RIGHTS.items())


def rows(routes: list[BaseRoute]) -> Iterator[tuple[str, str, Right | None]]:
    """Method, path and right of every route."""
    for route in routes:
        need: Right | None = getattr(getattr(route, "endpoint", None), "need", None)
        if isinstance(route, APIWebSocketRoute):
            yield "WebSocket", route.path, need
        elif isinstance(route, APIRoute):
            for method in sorted(route.methods or ()):
                yield method, route.path, need


def table(routes: list[BaseRoute]) -> str:
    """The matrix for people."""
    lines = [
        f"| request | right | {' | '.join(PRINCIPALS)} |",
        f"|---|---|{'---|' * len(PRINCIPALS)}",
    ]
    for method, path, need in sorted(rows(routes), key=lambda row: (row[1], row[0])):
        marks = " | ".join("yes" if allowed(need, who) else "" for who in PRINCIPALS)
        lines.append(f"| `{method} {path}` | {need or ''} | {marks} |")
    return "\n".join(lines)
