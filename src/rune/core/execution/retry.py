"""The retry policy: whether a failed attempt is followed by another one, and when."""

from __future__ import annotations

from rune.core.definition.model import Retry
from rune.core.execution.outcome import Error
from rune.core.execution.token import fraction
from rune.core.node_type import PERMANENT_CODES

SIGNAL_MISMATCH = "SIGNAL_MISMATCH"
"""The error code of a node that does not accept the signal which resumed it. It waits again, whatever its policy is."""

MAX_BACKOFF_MS = 36_525 * 86_400_000  # a node cannot postpone its retry by more than a century


def is_retried(retry: Retry, attempt: int, error: Error, permanent: frozenset[str] = frozenset()) -> bool:
    """Return whether the policy allows another attempt; `permanent` are the codes that the node type declares so.

    Without `on` a policy covers transient errors only. An effect with an unknown outcome is never retried.
    """
    if attempt >= retry.max_attempts or error.code == "UNKNOWN_OUTCOME":
        return False
    if retry.on:
        return error.code in retry.on
    if error.permanent is not None:
        return not error.permanent
    return error.code not in PERMANENT_CODES and error.code not in permanent


def retry_due(retry: Retry, attempt: int, failed_at: int, token: str, earliest: int = 0) -> int:
    """Return when the next attempt starts (epoch ms). Jitter is a hash, so every process agrees; of the time too, or
    all executions that failed at the same node would try again together."""
    delay = _delay(retry, attempt)
    if retry.jitter:
        delay *= 0.5 + fraction(token, attempt, failed_at) / 2
    due = failed_at + round(delay * 1000)
    return max(due, min(earliest, due + MAX_BACKOFF_MS))


def _delay(retry: Retry, attempt: int) -> float:
    try:
        return min(retry.initial_delay * float(retry.backoff) ** (attempt - 1), retry.max_delay)
    except OverflowError:
        return retry.max_delay if retry.initial_delay else 0.0
