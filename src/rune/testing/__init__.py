"""Test support for workflows and node types: an engine on a virtual clock, mocks, crashes, and checks of documents."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rune.testing.crash import CrashTester as CrashTester
    from rune.testing.engine import EmbeddedEngine as EmbeddedEngine
    from rune.testing.expectations import assert_problem as assert_problem
    from rune.testing.expectations import assert_valid as assert_valid
    from rune.testing.expectations import documents as documents
    from rune.testing.mocks import Mocks as Mocks
    from rune.testing.mocks import context as context

_MODULES = {
    "CrashTester": "rune.testing.crash",
    "EmbeddedEngine": "rune.testing.engine",
    "Mocks": "rune.testing.mocks",
    "assert_problem": "rune.testing.expectations",
    "assert_valid": "rune.testing.expectations",
    "context": "rune.testing.mocks",
    "documents": "rune.testing.expectations",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: the plugin of pytest loads no engine before a test uses it."""
    if name not in _MODULES:
        raise AttributeError(f"module 'rune.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
