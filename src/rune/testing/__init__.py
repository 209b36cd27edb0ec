"""Test support for workflows and node types: an engine on a virtual clock, mocks, crashes, and checks of documents."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rune.testing.checks import assert_problem as assert_problem
    from rune.testing.checks import assert_valid as assert_valid
    from rune.testing.checks import documents as documents
    from rune.testing.crash import CrashTester as CrashTester
    from rune.testing.engine import EmbeddedEngine as EmbeddedEngine
    from rune.testing.mocks import Mocks as Mocks
    from rune.testing.nodes import context as context

_MODULES = {
    "CrashTester": "rune.testing.crash",
    "EmbeddedEngine": "rune.testing.engine",
    "Mocks": "rune.testing.mocks",
    "assert_problem": "rune.testing.checks",
    "assert_valid": "rune.testing.checks",
    "context": "rune.testing.nodes",
    "documents": "rune.testing.checks",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: the plugin of pytest loads no engine before a test uses it."""
    if name not in _MODULES:
        raise AttributeError(f"module 'rune.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
