"""noop."""

from __future__ import annotations

import pytest

from tests.unit.nodes.running import output, run


@pytest.mark.parametrize("payload", [{"x": 1}, [1, 2], None, "text", 0])
@pytest.mark.parametrize("effectful", [False, True])
def test_noop_gives_its_payload(payload: object, effectful: bool) -> None:
    assert output(run("noop", {"effectful": effectful}, payload=payload)) == payload
