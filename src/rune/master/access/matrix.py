"""The matrix: every route, and which principals may use it."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.routing import BaseRoute

from rune.core.rights import RIGHTS, ROLES, Right
from rune.master.access.declared import OPEN

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
