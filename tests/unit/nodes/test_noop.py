"""The `noop` node."""

from __future__ import annotations

import pytest

from tests.unit.nodes.runner import output, run


@pytest.mark.parametrize("payload", [{"x": 1}, [1, 2], None, "text", 0])
@pytest.mark.parametrize("effectful", [False, True])
def test_payload_is_output(payload: object, effectful: bool) -> None:
    assert output(run("noop", {"effectful": effectful}, payload=payload)) == payload
