"""What clients ask of limits."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from rune.client.asking import Asking, AsyncAsking
from rune.client.calls import API, Call
from rune.client.models import Limits


def shown(workflow: str) -> Call[Limits]:
    return Call(method="GET", path=_path(workflow), answer=Limits, repeatable=True)


def put(workflow: str, limits: Limits) -> Call[Limits]:
    body = msgspec.json.encode(limits)
    return Call(method="PUT", path=_path(workflow), answer=Limits, body=body, repeatable=True)


def put_of_key(id: str, limits: Limits) -> Call[Limits]:
    body = msgspec.json.encode(limits)
    path = f"{API}/keys/{quote(id, safe='')}/limits"
    return Call(method="PUT", path=path, answer=Limits, body=body, repeatable=True)


def _path(workflow: str) -> str:
    return f"{API}/workflows/{quote(workflow, safe='')}/limits"


class LimitCalls:
    """Limits, for the client that waits for one thing at a time."""

    def limits(self: Asking, workflow: str) -> Limits:
        """What the starts of a workflow are held to."""
        found: Limits = self._ask(shown(workflow))
        return found

    def limit(self: Asking, workflow: str, limits: Limits) -> Limits:
        """Set all limits of a workflow; those that are not given are lifted."""
        found: Limits = self._ask(put(workflow, limits))
        return found

    def limit_key(self: Asking, id: str, limits: Limits) -> Limits:
        """Set all limits of a key; those that are not given are lifted."""
        found: Limits = self._ask(put_of_key(id, limits))
        return found


class AsyncLimitCalls:
    """Limits, for the client that waits for many things at once."""

    async def limits(self: AsyncAsking, workflow: str) -> Limits:
        """What the starts of a workflow are held to."""
        found: Limits = await self._ask(shown(workflow))
        return found

    async def limit(self: AsyncAsking, workflow: str, limits: Limits) -> Limits:
        """Set all limits of a workflow; those that are not given are lifted."""
        found: Limits = await self._ask(put(workflow, limits))
        return found

    async def limit_key(self: AsyncAsking, id: str, limits: Limits) -> Limits:
        """Set all limits of a key; those that are not given are lifted."""
        found: Limits = await self._ask(put_of_key(id, limits))
        return found
