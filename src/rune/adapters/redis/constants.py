"""The constants and positions that the Lua functions share with Python, written as Lua."""

from __future__ import annotations

import re

from rune.adapters.redis.encoding import SEND_MARKS, UNSENT_MS
from rune.core.execution.fact import CHILD_SIGNAL
from rune.ports.state import LEASE_MS

LAYOUTS = {
    # Written by encoding.py and snapshot.py.
    "TOKEN": "node path payload error arrived fate attempt resumed signal items at last",
    "DECISION": "node path at kind info effects",
    "SIGNAL": "at id name path",
    "REGION": "node path nodes",
    "RACE": "node timeout",
    "PAUSE": "began ended",
    "ARRIVAL": "edge source alive payload error at",
    "FAILURE": "path node error",
    # The info of a decision, by its kind: a result or a node that is skipped, an attempt, a suspension, a choice.
    "RESULT": "status timeout from gathers region signal",
    "ATTEMPT": "attempt due signal",
    "SUSPENSION": "attempt due signal deadline",
    "CHOICE": "arrived payload error region",
    # The kinds of effects, and the parts of each.
    "KIND": "emit arrive gather skip spread uncollected finish",
    "EFFECT": "kind",
    "EMIT": "kind node payload error",
    "ARRIVE": "kind node place edge source parties opens timeout from alive payload error",
    "GATHER": "kind position mark",
    "SKIP": "kind node",
    "SPREAD": "kind node count payload error window aggregator edges timeout from template races",
    "UNCOLLECTED": "kind node failure",
    "FINISH": "kind ending",
    # Arguments and replies of one verb.
    "CLAIM": "node path fate attempt resumed owner leased token",
    "SUCCESSOR": "node path owner",
    "SWEPT": "node path",
    "CONTROL": "at number paused",
    "FIRED": "timer due emitted ending items",
}
"""The parts of each list, in their order. Lua names them as in `token[TOKEN.fate]`."""

_POSITIONS = {
    f"{layout}.{part}": str(position)
    for layout, parts in LAYOUTS.items()
    for position, part in enumerate(parts.split(), 1)
}
_NAME = re.compile(rf"\b(?:{'|'.join(LAYOUTS)})\.\w+")


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


def with_positions(text: str) -> str:
    """Return Lua with the position in place of each name in LAYOUTS. A lookup in the function would cost time."""
    return _NAME.sub(lambda name: _POSITIONS[name[0]], text)


def _text(text: str) -> str:
    """Return a text as a Lua literal."""
    return '"' + "".join(f"\\{byte:03d}" for byte in text.encode()) + '"'
