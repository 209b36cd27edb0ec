"""Generated requests by every role respect the permission matrix and cause no server error."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import strategies as st

from rune.core.permissions import ROLES
from rune.server.routing import PRINCIPALS
from rune.settings import Settings
from tests.acceptance.access.test_matrix import expected
from tests.support.api_clients import BOOTSTRAP, NONE, populate
from tests.support.api_server import RunningServer, in_thread
from tests.support.generated_requests import send_until
from tests.support.whole import WHOLE

EACH = int(os.environ.get("RUNE_REQUESTS", "10000" if WHOLE else "25"))
"""Requests per role, and without a key."""

BY_CONTENT = {("POST", "/api/v1/executions"): "edit"}
"""Routes that need another permission if the request contains a definition."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """A server and a key of each role."""
    keys: dict[str, str] = {}

    async def made(running: RunningServer) -> None:
        await populate(running)
        for role in ROLES:
            keys[role] = (await running.client.create_key(role, role)).key

    with in_thread(tmp_path_factory.mktemp("roles"), made, key=BOOTSTRAP) as url:
        yield url, keys


class RequestSender:
    """Sends generated requests as different roles."""

    def __init__(self, url: str, keys: dict[str, str]) -> None:
        self._url = url
        self._keys = keys
        self.sent: Counter[str] = Counter()

    def check(self, operation: Any, case: Any, role: str) -> None:
        self.sent[role] += 1
        need = operation.definition.raw["x-needs"]
        headers = {} if role == NONE else {"Authorization": f"Bearer {self._keys[role]}"}
        response = case.call(base_url=self._url, headers=headers)
        got = response.status_code
        assert got < 500, (operation.label, role, got)
        if got == 414:  # the length of the URL is checked before any permission
            assert len(response.request.url) > Settings().api_url_bytes, (operation.label, role, got)
            return
        more = BY_CONTENT.get((operation.method.upper(), operation.path), need)
        as_said = expected(need, role, got) or (got == 403 and expected(more, role, got))
        assert as_said, (operation.label, role, got)

    def lacking(self) -> int:
        """The number of requests that are missing, over all roles."""
        return sum(max(0, EACH - self.sent[role]) for role in PRINCIPALS)

    def turns(self, turn: int) -> dict[str, st.SearchStrategy[Any]]:
        """A strategy for the role: one with too few requests, starting with another one in each turn."""
        late = [role for role in PRINCIPALS if self.sent[role] < EACH] or list(PRINCIPALS)
        first = turn % len(late)
        return {"role": st.sampled_from(late[first:] + late[:first])}


def test_generated_requests_respect_permission_matrix(
    server: tuple[str, dict[str, str]],
) -> None:
    sender = RequestSender(*server)
    assert send_until(sender.lacking, sender.check, sender.turns) == []
    assert {*ROLES, NONE} == set(PRINCIPALS)
    assert [role for role in PRINCIPALS if sender.sent[role] < EACH] == []
