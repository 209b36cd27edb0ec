"""Retry: whether a failed attempt is tried again, and when."""

from __future__ import annotations

from rune.core.definition import Retry
from rune.core.outcome import Error
from rune.ids import fraction

LONGEST = 36_525 * 86_400_000  # ms: nobody who asks for more than a century is believed


def tries_again(retry: Retry, attempt: int, error: Error) -> bool:
    """Whether the policy grants one more attempt for this error. What may have been done is not done again."""
    if error.code == "UNKNOWN_OUTCOME":
        return False
    return attempt < retry.max_attempts and (not retry.on or error.code in retry.on)


def retry_due(retry: Retry, attempt: int, failed_at: int, token: str, earliest: int = 0) -> int:
    """When the next attempt starts (epoch ms). Jitter is hashed from the token: the same for every reader."""
    delay = _delay(retry, attempt)
    if retry.jitter:
        delay *= 0.5 + fraction(token, attempt) / 2
    due = failed_at + round(delay * 1000)
    return max(due, min(earliest, due + LONGEST))


def _delay(retry: Retry, attempt: int) -> float:
    try:
        return min(retry.initial_delay * float(retry.backoff) ** (attempt - 1), retry.max_delay)
    except OverflowError:
        return retry.max_delay if retry.initial_delay else 0.0
