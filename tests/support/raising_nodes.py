"""A module of node types that raises when it is imported."""

from __future__ import annotations

raise RuntimeError("the module was imported")
