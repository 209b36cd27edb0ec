"""Fixtures of the tests of histories."""

from __future__ import annotations

from tests.support.backends import backend

__all__ = ["backend"]
