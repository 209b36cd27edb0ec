"""Fixtures of the fault tests."""

from __future__ import annotations

from tests.support.backends import backend

__all__ = ["backend"]
