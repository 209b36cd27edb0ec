"""Fixtures of the tests of what runs now."""

from __future__ import annotations

import pytest

from tests.support.backends import backend
from tests.support.gated_nodes import close_gates

__all__ = ["backend"]


@pytest.fixture(autouse=True)
def closed_gates() -> None:
    close_gates()
