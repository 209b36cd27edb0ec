"""Roles, scopes, grants and API keys."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.permissions import (
    QUEUE,
    RIGHTS,
    ROLES,
    Principal,
    fits,
    is_grant,
    is_scope,
    may_call,
    permits,
)
from rune.ports.access import ApiKey, digest_of, new_key, read_key

NAMES = st.text("ab-", max_size=8)
PATTERNS = st.text("ab-*", max_size=6)


@given(pattern=PATTERNS, text=NAMES)
def test_star_in_pattern_matches_any_text(pattern: str, text: str) -> None:
    assert fits(pattern, text) == fnmatch.fnmatchcase(text, pattern)


def test_roles_have_increasing_rights() -> None:
    assert {role: sorted(RIGHTS[role]) for role in ROLES} == {
        "viewer": ["inbox", "self", "view"],
        "approver": ["inbox", "self", "signal"],
        "runner": ["inbox", "run", "self", "signal", "view"],
        "editor": ["edit", "inbox", "run", "self", "signal", "view"],
        "admin": ["admin", "edit", "inbox", "run", "self", "signal", "view"],
    }
    assert not any(Principal("p", role).may("hook") for role in ROLES)


def test_child_is_within_scopes_or_lists_its_caller() -> None:
    assert may_call((), "a", "anything", ())
    assert may_call(("shop-*", "a"), "a", "shop-1", ())
    assert not may_call(("shop-*", "a"), "a", "shop", ())
    assert not may_call(("shop-*",), "shop-1", "wages", ("shop", "billing-*"))
    assert may_call(("shop-*",), "shop-1", "wages", ("billing", "shop-*"))


def test_scoped_principal_sees_matching_workflows() -> None:
    scoped = Principal("p", "viewer", ("orders-*", "hello"))
    assert [scoped.sees(each) for each in ("orders-1", "hello", "orders", "hello2", "")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert Principal("p", "viewer").sees("anything")


@pytest.mark.parametrize("text", ["", "a.b", "a/b", "a b", "?", "[a]", "é", "a" * 129, "a\n"])
def test_malformed_scope_is_rejected(text: str) -> None:
    assert not is_scope(text)


@pytest.mark.parametrize("text", ["", "*", "key:", "role:admin", "everyone ", "queue*", "key:a:b", "KEY:a"])
def test_malformed_grant_is_rejected(text: str) -> None:
    assert not is_grant(text)


@pytest.mark.parametrize(
    ("grants", "principal", "stored", "permitted"),
    [
        ({"everyone"}, "local", False, True),
        ({"everyone"}, "key:k1", False, True),
        ({"everyone"}, "trigger:t1", False, True),
        ({"everyone"}, QUEUE, True, False),
        ({"everyone", "queue"}, QUEUE, False, True),
        (set(), "local", True, False),
        ({"key:k1"}, "key:k1", False, True),
        ({"key:k1"}, "key:k12", False, False),
        ({"key:k1"}, "local", False, False),
        ({"trigger:*"}, "trigger:t1", False, True),
        ({"key:*"}, QUEUE, True, False),
        ({"workflow:ord*"}, QUEUE, True, True),
        ({"workflow:ord*"}, "local", True, True),
        ({"workflow:ord*"}, "local", False, False),
        ({"workflow:other"}, "local", True, False),
    ],
)
def test_permits_by_grant_and_principal(
    grants: set[str], principal: str, stored: bool, permitted: bool
) -> None:
    assert permits(grants, principal, "orders", stored=stored) is permitted


def test_keys_are_unique_and_repr_hides_secret() -> None:
    one, other = new_key(), new_key()
    assert (one.id, one.secret) != (other.id, other.secret)
    assert read_key(one.text) == one
    assert one.secret not in repr(one)
    stored_key = ApiKey(
        id=one.id, name="n", role="viewer", digest=digest_of(one.secret), created_at=1, created_by="local"
    )
    assert stored_key.has_secret(one.secret)
    assert not stored_key.has_secret(other.secret)
    assert one.secret.encode() not in stored_key.digest


@pytest.mark.parametrize(
    "text",
    ["", "rune_", "rune_k1_2", "x" * 4_000, f"rune_k{'0' * 16}_{'g' * 64}", f" rune_k{'0' * 16}_{'0' * 64}"],
)
def test_malformed_key_is_not_read(text: str) -> None:
    assert read_key(text) is None
