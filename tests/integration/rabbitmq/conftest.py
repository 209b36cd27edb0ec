"""The broker is started before the first test that needs it has a deadline."""

from __future__ import annotations

import pytest

from tests.support.services.rabbitmq import broker


@pytest.fixture(autouse=True, scope="session")
def started() -> None:
    broker()
