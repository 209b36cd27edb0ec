"""The constants that the Lua functions share with Python, written as Lua."""

from __future__ import annotations

from rune.adapters.redis.encoding import SEND_MARKS, UNSENT_MS
from rune.core.execution.fact import CHILD_SIGNAL
from rune.ports.state import LEASE_MS


def lua_constants(prefix: str) -> str:
    """Return the declarations for the functions of one key prefix."""
    values = {
        "PREFIX": _text(f"{prefix}:"),
        "LEASE": LEASE_MS,
        "UNSENT": UNSENT_MS,
        "SEND_MARKS": SEND_MARKS,
        "CHILD": _text(CHILD_SIGNAL),
    }
    return "".join(f"local {name} = {value}\n" for name, value in values.items())


def _text(text: str) -> str:
    """Return a text as a Lua literal."""
    return '"' + "".join(f"\\{byte:03d}" for byte in text.encode()) + '"'
