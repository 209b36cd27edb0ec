"""Starts the broker before the timeout of the first test begins."""

from __future__ import annotations

import pytest

from tests.support.services.rabbitmq import broker


@pytest.fixture(autouse=True, scope="session")
def _broker() -> None:
    broker()
