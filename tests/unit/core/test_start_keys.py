"""Idempotency keys of clients and of Rune itself."""

from __future__ import annotations

import pytest

from rune.core.execution.token import child_id
from rune.core.start_keys import (
    RESERVED,
    ReservedKeyError,
    check_key,
    check_signal_key,
    sent_key,
    stored_key,
)

LIMITED = "key:k0123456789abcdef"


@pytest.mark.parametrize("prefix", RESERVED)
def test_client_may_not_use_a_key_of_rune(prefix: str) -> None:
    for check in (check_key, check_signal_key):
        with pytest.raises(ReservedKeyError, match="may not begin with"):
            check(f"{prefix}x")


def test_client_may_use_other_keys_or_none() -> None:
    for key in (None, "", "order-7", "a tick:", "ticks", child_id("x", "call@/", 1)):
        check_key(key)
    for key in (None, "", "order-7"):
        check_signal_key(key)


def test_signal_may_not_take_the_id_of_a_child_as_its_key() -> None:
    with pytest.raises(ReservedKeyError, match="id of a child execution"):
        check_signal_key(child_id("x", "call@/", 1))


def test_key_of_a_limited_principal_is_stored_apart_and_shown_as_sent() -> None:
    stored = stored_key("order-7", LIMITED, ("pub-*",))
    assert stored != stored_key("order-7", "key:kfedcba9876543210", ("pub-*",))
    assert stored is not None
    assert sent_key(stored) == "order-7"


def test_key_of_an_unlimited_principal_is_stored_as_sent() -> None:
    assert stored_key("order-7", "key:k0123456789abcdef", ()) == "order-7"
    assert stored_key(None, LIMITED, ("pub-*",)) is None
    assert sent_key("order-7") == "order-7"


def test_stored_form_of_a_limited_key_cannot_be_sent() -> None:
    with pytest.raises(ReservedKeyError):
        stored_key(f"{LIMITED}:order-7", "local", ())
