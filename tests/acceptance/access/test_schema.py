"""Made-up requests by everybody: no defect is found, and nobody gets further than the table says."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import strategies as st

from rune.core.permissions import ROLES
from rune.server.permissions import PRINCIPALS
from tests.acceptance.access.asking import BOOTSTRAP, NONE, filled
from tests.acceptance.access.test_matrix import expected
from tests.acceptance.api.madeup import ask_until
from tests.acceptance.api.running import Served, in_thread
from tests.support.whole import WHOLE

EACH = int(os.environ.get("RUNE_REQUESTS", "10000" if WHOLE else "25"))
"""Requests of each role, and of somebody without a key."""

BY_CONTENT = {("POST", "/api/v1/executions"): "edit"}
"""What takes more than its route says, where a request brings a definition along."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """A server, and a key of each role."""
    keys: dict[str, str] = {}

    async def made(running: Served) -> None:
        await filled(running)
        for role in ROLES:
            keys[role] = (await running.client.create_key(role, role)).key

    with in_thread(tmp_path_factory.mktemp("roles"), made, key=BOOTSTRAP) as url:
        yield url, keys


class Asker:
    """Sends made-up requests, now as this one, now as that one."""

    def __init__(self, url: str, keys: dict[str, str]) -> None:
        self._url = url
        self._keys = keys
        self.asked: Counter[str] = Counter()

    def check(self, operation: Any, case: Any, who: str) -> None:
        self.asked[who] += 1
        need = operation.definition.raw["x-needs"]
        headers = {} if who == NONE else {"Authorization": f"Bearer {self._keys[who]}"}
        got = case.call(base_url=self._url, headers=headers).status_code
        assert got < 500, (operation.label, who, got)
        more = BY_CONTENT.get((operation.method.upper(), operation.path), need)
        as_said = expected(need, who, got) or (got == 403 and expected(more, who, got))
        assert as_said, (operation.label, who, got)

    def lacking(self) -> int:
        """How many requests are missing, of all who have not asked often enough."""
        return sum(max(0, EACH - self.asked[who]) for who in PRINCIPALS)

    def turns(self, turn: int) -> dict[str, st.SearchStrategy[Any]]:
        """Who asks: one of those who have not asked often enough, another first in each turn."""
        late = [who for who in PRINCIPALS if self.asked[who] < EACH] or list(PRINCIPALS)
        first = turn % len(late)
        return {"who": st.sampled_from(late[first:] + late[:first])}


def test_made_up_requests_by_everybody_get_as_far_as_the_table_says(
    server: tuple[str, dict[str, str]],
) -> None:
    asker = Asker(*server)
    assert ask_until(asker.lacking, asker.check, asker.turns) == []
    assert {*ROLES, NONE} == set(PRINCIPALS)
    assert [who for who in PRINCIPALS if asker.asked[who] < EACH] == []
