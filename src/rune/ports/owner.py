"""The owner: the one process that writes an embedded file. Others ask it, and one of them follows when it goes."""

from __future__ import annotations

from rune.ports.journal import StoreAway

VERBS = (
    "run",
    "start",
    "signal",
    "cancel",
    "pause",
    "resume",
    "retry",
    "rerun",
    "dead_letters",
    "requeue",
    "drop",
    "deploy",
    "point",
    "hide",
    "collect",
    "add_credential",
    "rotate_credential",
    "remove_credential",
    "rekey",
    "grant_credential",
    "withdraw_credential",
    "create_key",
    "revoke_key",
    "limit_workflow",
    "limit_key",
    "triggers",
    "find_trigger",
    "enable_trigger",
    "rotate_trigger",
)
"""What others may ask the owner for. Nothing that is not named here can be asked."""

MARKED = {"run": "execution", "start": "execution", "signal": "key", "retry": "key", "rerun": "key"}
"""The argument by which the owner knows a verb that is asked for again; whoever asks makes one up."""


class InUse(StoreAway):
    """Another process owns the file."""


class NoOwner(StoreAway):
    """Nobody listens: there is no owner, or it is only just starting, or about to leave."""


class Lost(StoreAway):
    """The owner went before it answered. What was asked for may have been done."""
