"""Fixture: the backends of clusters."""

from __future__ import annotations

from tests.support.backends import backend

__all__ = ["backend"]
