"""Trigger nodes."""

from __future__ import annotations

import pytest

from tests.unit.nodes.runner import output, run


@pytest.mark.parametrize(
    ("type", "parameters"),
    [("manual", {}), ("input", {}), ("webhook", {"path": "orders"}), ("schedule", {"cron": "0 9 * * 1"})],
)
@pytest.mark.parametrize("payload", [{"x": 1}, [1, 2], None, "text", 0])
def test_trigger_outputs_payload(type: str, parameters: dict[str, object], payload: object) -> None:
    assert output(run(type, parameters, payload=payload)) == payload
