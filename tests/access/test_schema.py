"""Made-up requests by everybody: no defect is found, and nobody gets further than the table says."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.result import Ok

from rune.core.rights import ROLES
from rune.master.access.matrix import PRINCIPALS
from rune.master.app import document
from tests.access.asking import BOOTSTRAP, NONE, filled
from tests.access.test_matrix import expected
from tests.master.running import Served, served
from tests.whole import WHOLE

REQUESTS = 10_000 * len(PRINCIPALS) if WHOLE else 125
STREAMS = {"/api/v1/events", "/api/v1/executions/{execution}/events"}
BY_CONTENT = {("POST", "/api/v1/executions"): "edit"}
"""What takes more than its route says, where a request brings a definition along."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """A server in a thread of its own, and a key of each role."""
    folder: Path = tmp_path_factory.mktemp("roles")
    up, down = threading.Event(), threading.Event()
    urls: list[str] = []
    keys: dict[str, str] = {}

    async def made(running: Served) -> None:
        await filled(running)
        for role in ROLES:
            keys[role] = (await running.client.create_key(role, role)).key

    async def go() -> None:
        async with served(folder, key=BOOTSTRAP) as running:
            await made(running)
            urls.append(running.url)
            up.set()
            await asyncio.to_thread(down.wait)

    thread = threading.Thread(target=lambda: asyncio.run(go()))
    thread.start()
    assert up.wait(120)
    yield urls[0], keys
    down.set()
    thread.join()


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

    def ask(self, operation: Any, mode: GenerationMode, times: int, first: int) -> None:
        # In a short run each operation is asked by few: all of them together are asked by everybody.
        turns = PRINCIPALS[first:] + PRINCIPALS[:first]

        @settings(
            max_examples=times,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode), who=st.sampled_from(turns))
        def check(case: Any, who: str) -> None:
            self.check(operation, case, who)

        check()


def test_made_up_requests_by_everybody_get_as_far_as_the_table_says(
    server: tuple[str, dict[str, str]],
) -> None:
    asker = Asker(*server)
    schema = schemathesis.openapi.from_dict(document())
    known = [each.ok() for each in schema.get_all_operations() if isinstance(each, Ok)]
    operations = [each for each in known if each.path not in STREAMS]
    times = max(1, REQUESTS // (2 * len(operations)))
    found: list[str] = []
    for number, operation in enumerate(operations):
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            try:
                asker.ask(operation, mode, times, number % len(PRINCIPALS))
            except Unsatisfiable:
                continue  # an operation that takes nothing cannot be given anything bad
            except (Exception, BaseExceptionGroup) as error:
                found.append(f"{mode.value} {operation.label}: {error}")
    assert found == []
    assert asker.asked.total() >= REQUESTS // 2
    assert set(asker.asked) == set(PRINCIPALS)
