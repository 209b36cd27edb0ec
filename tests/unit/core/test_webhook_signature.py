"""Signatures of webhook requests."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from rune.core.webhooks import replay_deadline, sign, signature_error

NOW = 1_700_000_000_000
SENT = "1700000000"


def test_sign_is_hmac_of_timestamp_and_body() -> None:
    expected = hmac.new(b"secret", b"1700000000.body", hashlib.sha256).hexdigest()
    assert sign("secret", SENT, b"body") == f"sha256={expected}"


@pytest.mark.parametrize("skew", [0, 300_000, -300_000])
def test_valid_signature_within_tolerance_is_accepted(skew: int) -> None:
    assert signature_error("secret", SENT, sign("secret", SENT, b"body"), b"body", NOW + skew, 300) is None
    assert replay_deadline(SENT, 300) == NOW + 301_000


GOOD = sign("secret", SENT, b"body")


@pytest.mark.parametrize(
    ("timestamp", "signature", "body", "now", "reason"),
    [
        (None, GOOD, b"body", NOW, "missing"),
        (SENT, None, b"body", NOW, "missing"),
        ("", GOOD, b"body", NOW, "missing"),
        (SENT, GOOD[:-1], b"body", NOW, "malformed"),
        (SENT, GOOD + "0", b"body", NOW, "malformed"),
        (SENT, GOOD.upper(), b"body", NOW, "malformed"),
        (SENT, GOOD + "\n", b"body", NOW, "malformed"),
        (SENT + ".5", GOOD, b"body", NOW, "malformed"),
        ("-1", GOOD, b"body", NOW, "malformed"),
        ("٣", GOOD, b"body", NOW, "malformed"),
        (SENT, GOOD, b"bod", NOW, "wrong"),
        (SENT, GOOD, b"", NOW, "wrong"),
        ("1700000001", GOOD, b"body", NOW, "wrong"),
        ("0" + SENT, GOOD, b"body", NOW, "wrong"),
        (SENT, sign("other", SENT, b"body"), b"body", NOW, "wrong"),
        (SENT, GOOD, b"body", NOW + 300_001, "old"),
        (SENT, GOOD, b"body", NOW - 300_001, "old"),
    ],
)
def test_invalid_signature_is_rejected_with_reason(
    timestamp: str | None, signature: str | None, body: bytes, now: int, reason: str
) -> None:
    assert signature_error("secret", timestamp, signature, body, now, 300) == reason
