"""Mistakes: outcomes that a node cannot have. They end its attempt as any failure does, with a code."""

from __future__ import annotations

from rune.core.limits import Limits
from rune.core.outcome import Error, Failure, FanOut, Outcome, Output, Suspend
from rune.core.plan import NodePlan
from rune.core.token import Token

BAD_OUTCOME = "BAD_OUTCOME"
LIMIT_EXCEEDED = "LIMIT_EXCEEDED"
FAR = 2**53  # ms; every store and every reader keeps whole numbers up to here


def mistake(node: NodePlan, token: Token, outcome: Outcome, limits: Limits) -> Error | None:
    """What is wrong with an outcome, or None. An output that fits has been let through before."""
    if isinstance(outcome, Output):
        return _bad(node, _of_output(node, outcome))
    if isinstance(outcome, FanOut):
        return _of_items(node, outcome, limits)
    if isinstance(outcome, Suspend):
        return _bad(node, _of_suspension(token, outcome))
    if isinstance(outcome, Failure):
        return _bad(node, _of_failure(outcome))
    return None


def _bad(node: NodePlan, what: str | None) -> Error | None:
    return None if what is None else Error(BAD_OUTCOME, f"`{node.id}` {what}")


def _of_output(node: NodePlan, outcome: Output) -> str:
    if node.fans_out:
        return "ended with an output, where only items can follow"
    known = ", ".join(f"`{each}`" for each in node.by_outlet if each is not None)
    return f"left by outlet {_shown(outcome.outlet)}; it has {known or 'none'}"


def _of_items(node: NodePlan, outcome: FanOut, limits: Limits) -> Error | None:
    if not node.fans_out:
        return _bad(node, "ended as items, but is no node that fans out")
    if type(outcome.count) is not int or outcome.count < 0:
        return _bad(node, f"ended as items, {_shown(outcome.count)} of them")
    if outcome.count > limits.items:
        message = (
            f"`{node.id}` ended as items, {_shown(outcome.count)} of them: at most {limits.items:,} allowed"
        )
        return Error(LIMIT_EXCEEDED, message, {"limit": "items", "allowed": limits.items})
    return None


def _of_suspension(token: Token, outcome: Suspend) -> str | None:
    if token.resumed:
        return "waits a second time in one attempt"
    if outcome.until is None and outcome.signal is None:
        return "waits for nothing"
    if outcome.until is not None and (type(outcome.until) is not int or abs(outcome.until) > FAR):
        return f"waits until {_shown(outcome.until)}, which is no time in ms"
    if outcome.signal is not None and type(outcome.signal) is not str:
        return f"waits for signal {_shown(outcome.signal)}, which is no name"
    return None


def _of_failure(outcome: Failure) -> str | None:
    error = outcome.error
    if type(error) is not Error:
        return f"failed with {_shown(error)}, which is no error"
    if type(error.code) is not str or not error.code:
        return f"failed with code {_shown(error.code)}, which is no code"
    if type(error.message) is not str or type(error.details) is not dict:
        return f"failed with code {_shown(error.code)} and an error that is not whole"
    return None


def _shown(value: object) -> str:
    """A value in a message. Never fails: not for ten thousand digits, nor half a character."""
    if isinstance(value, str):
        return f"`{value[:100].encode('utf-8', 'backslashreplace').decode()}`"
    if type(value) is int and abs(value) <= FAR:
        return f"{value:,}"
    return f"a value of type {type(value).__name__}"
