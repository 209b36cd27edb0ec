"""Routes without detours: the endpoint takes the request and answers a response, so nothing is worked out each time."""

from __future__ import annotations

from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from rune.master.gate import Undeclared


class QuickRoute(APIRoute):
    """A route whose dependencies are gates: each is asked, in the order they were declared, before the endpoint is."""

    def __init__(self, *given: Any, **said: Any) -> None:
        super().__init__(*given, **said)
        if getattr(self.endpoint, "need", None) is None:
            raise Undeclared(f"{self.path} does not say what right it takes")
        gates: list[Any] = [each.call for each in self.dependant.dependencies]
        endpoint = self.endpoint

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            request = Request(scope, receive, send)
            for gate in gates:
                await gate(request)
            response = await endpoint(request)
            await response(scope, receive, send)

        self.app = app
