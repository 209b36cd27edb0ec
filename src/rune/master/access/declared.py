"""Declared: a table of routes in which every route says what right it takes, and passes the gate."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.routing import BaseRoute

from rune.core.rights import RIGHTS
from rune.master.gate import Undeclared, authorize

OPEN = {"hook": re.compile("/hooks/.+"), "page": re.compile("/|/static/.+")}
"""Where routes are that prove in their own way who asks, and those that tell nothing of anybody; nowhere else."""
KNOWN = frozenset(OPEN).union(*RIGHTS.values())


def check_declared(routes: Iterable[BaseRoute], exempt: Iterable[Any]) -> None:
    """Refuse a table with a route that anybody could use by mistake. `exempt` are endpoints themselves: names could be
    imitated."""
    free = [id(each) for each in exempt]
    for route in routes:
        if not isinstance(route, APIRoute | APIWebSocketRoute):
            raise Undeclared(f"{route} is no route that passes the gate")
        if id(route.endpoint) in free:
            continue
        need = getattr(route.endpoint, "need", None)
        if need not in KNOWN:
            raise Undeclared(f"{route.path} does not say what right it takes")
        if authorize not in [each.call for each in route.dependant.dependencies]:
            raise Undeclared(f"{route.path} does not pass the gate")
        for right, place in OPEN.items():
            if (need == right) != bool(place.fullmatch(route.path)):
                raise Undeclared(
                    f"{route.path}: `{right}` is the right of {place.pattern}, and of nothing else"
                )
