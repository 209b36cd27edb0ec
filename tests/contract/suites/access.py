"""Contract of the stores of API keys, grants and the audit log."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import pytest

from rune.core.permissions import DEFAULT_GRANTS
from rune.ports.access import (
    ApiKey,
    ApiKeyStore,
    AuditEntry,
    AuditFilter,
    AuditLogStore,
    KeyNotFoundError,
    Session,
    SessionStore,
    digest_of,
    new_entry_id,
    new_key,
)
from rune.ports.credentials import Bearer, CredentialGrants, CredentialStore, NewCredential
from tests.support.async_test import async_test

MANY = 40


def key(at: int = 1, **overrides: object) -> ApiKey:
    """Return a new key with the given overrides."""
    made = new_key()
    record = ApiKey(
        id=made.id,
        name="ada",
        role="runner",
        digest=digest_of(made.secret),
        created_at=at,
        created_by="local",
    )
    return msgspec.structs.replace(record, **overrides)


def entry(action: str = "workflow.deploy", target: str = "orders", **overrides: object) -> AuditEntry:
    """Return a new audit entry with the given overrides."""
    record = AuditEntry(id=new_entry_id(), at=5, actor="key:k1", action=action, target=target)
    return msgspec.structs.replace(record, **overrides)


class AccessStores(msgspec.Struct):
    """The stores under test."""

    keys: ApiKeyStore
    grants: CredentialGrants
    log: AuditLogStore
    credentials: CredentialStore
    sessions: SessionStore


class AccessContract:
    """Subclasses open the stores in a folder; opened again there, they have the same content."""

    def make_access_stores(self, folder: Path) -> AbstractAsyncContextManager[AccessStores]:
        raise NotImplementedError

    def execute_directly(self, folder: Path, statement: str) -> str:
        """Run the statement on the database directly; return the error message."""
        raise NotImplementedError

    @async_test
    async def test_session_is_stored_until_removed(self, tmp_path: Path) -> None:
        wanted = Session(id="s1", principal="key:k1", proof=b"\x00\xff", created_at=5, expires_at=9)
        async with self.make_access_stores(tmp_path) as stores:
            await stores.sessions.put(wanted)
        async with self.make_access_stores(tmp_path) as stores:
            assert await stores.sessions.find("s1") == wanted
            assert await stores.sessions.find("s2") is None
            await stores.sessions.remove("s1")
            await stores.sessions.remove("s1")
            assert await stores.sessions.find("s1") is None

    @async_test
    async def test_new_session_removes_expired_ones(self, tmp_path: Path) -> None:
        def session(id: str, created_at: int) -> Session:
            return Session(
                id=id, principal="bootstrap", proof=b"p", created_at=created_at, expires_at=created_at + 10
            )

        async with self.make_access_stores(tmp_path) as stores:
            for id, at in (("old", 0), ("live", 5), ("new", 10)):
                await stores.sessions.put(session(id, at))
            assert await stores.sessions.find("old") is None
            assert await stores.sessions.find("live") is not None
            assert await stores.sessions.find("new") is not None

    @async_test
    async def test_put_key_is_stored_unchanged(self, tmp_path: Path) -> None:
        wanted = key(scopes=("orders-*", "x"), expires_at=99, name="Zoë")
        async with self.make_access_stores(tmp_path) as stores:
            assert not await stores.keys.exist()
            assert await stores.keys.put(wanted) == wanted
            assert await stores.keys.put(msgspec.structs.replace(wanted, role="admin")) == wanted
        async with self.make_access_stores(tmp_path) as stores:
            assert await stores.keys.exist()
            assert await stores.keys.find(wanted.id) == wanted
            assert await stores.keys.list() == [wanted]
            assert await stores.keys.find("k0") is None

    @async_test
    async def test_keys_are_listed_by_creation_time(self, tmp_path: Path) -> None:
        async with self.make_access_stores(tmp_path) as stores:
            for at in (3, 1, 2):
                await stores.keys.put(key(at))
            assert [each.created_at for each in await stores.keys.list()] == [1, 2, 3]

    @async_test
    async def test_second_revocation_keeps_first_time(self, tmp_path: Path) -> None:
        async with self.make_access_stores(tmp_path) as stores:
            made = await stores.keys.put(key())
            await stores.keys.mark_used(made.id, 7)
            assert (await stores.keys.revoke(made.id, 10)).revoked_at == 10
            again = await stores.keys.revoke(made.id, 20)
            assert (again.revoked_at, again.used_at) == (10, 7)
            with pytest.raises(KeyNotFoundError):
                await stores.keys.revoke("k0000000000000000", 1)

    @async_test
    async def test_grants_default_to_everyone_and_are_removed_with_credential(self, tmp_path: Path) -> None:
        id = "c" + "0" * 32
        async with self.make_access_stores(tmp_path) as stores:
            await stores.credentials.put(NewCredential(id=id, name="shop", fields=Bearer(token="t"), at=1))
            assert await stores.grants.of(id) == DEFAULT_GRANTS
            assert await stores.grants.change(id, ["queue"], []) == {"everyone", "queue"}
            assert await stores.grants.change(id, [], ["everyone", "local"]) == {"queue"}
        async with self.make_access_stores(tmp_path) as stores:
            assert await stores.grants.change(id, [], ["queue"]) == frozenset()
            assert await stores.grants.of(id) == frozenset()
            await stores.credentials.remove("shop")
            assert await stores.grants.of(id) == DEFAULT_GRANTS

    @async_test
    async def test_first_grants_are_stored_with_credential(self, tmp_path: Path) -> None:
        draft = NewCredential(
            id="c" + "2" * 32, name="shop", fields=Bearer(token="t"), grants=frozenset({"local"}), at=1
        )
        async with self.make_access_stores(tmp_path) as stores:
            await stores.credentials.put(draft)
            assert await stores.grants.of(draft.id) == {"local"}
            await stores.grants.change(draft.id, ["queue"], ["local"])
            await stores.credentials.put(draft)  # a repeated call does not restore the first grants
            assert await stores.grants.of(draft.id) == {"queue"}

    @async_test
    async def test_concurrent_grants_are_all_stored(self, tmp_path: Path) -> None:
        id = "c" + "1" * 32
        async with self.make_access_stores(tmp_path) as stores:
            await stores.credentials.put(NewCredential(id=id, name="shop", fields=Bearer(token="t"), at=1))
            grantees = [f"key:k{number}" for number in range(MANY)]
            await asyncio.gather(*(stores.grants.change(id, [each], []) for each in grantees))
            assert await stores.grants.of(id) == {"everyone", *grantees}

    @async_test
    async def test_audit_entries_are_paged_newest_first(self, tmp_path: Path) -> None:
        async with self.make_access_stores(tmp_path) as stores:
            for number in range(7):
                await stores.log.write(entry(target=f"w{number}", details={"alias": "é"}))
        async with self.make_access_stores(tmp_path) as stores:
            first = await stores.log.read(limit=4)
            rest = await stores.log.read(before=first[-1].number, limit=4)
            assert [each.target for each in (*first, *rest)] == [f"w{number}" for number in range(6, -1, -1)]
            assert first[0].details == {"alias": "é"}
            assert await stores.log.read(before=rest[-1].number) == []

    @async_test
    async def test_audit_entries_are_followed_oldest_first(self, tmp_path: Path) -> None:
        async with self.make_access_stores(tmp_path) as stores:
            made = [entry(target=f"w{number}", address="192.0.2.7", request="r1") for number in range(5)]
            for each in made:
                await stores.log.write(each)
            first = await stores.log.follow(0, limit=2)
            rest = await stores.log.follow(first[-1].number, limit=10)
            assert [each.id for each in (*first, *rest)] == [each.id for each in made]
            assert {(each.address, each.request) for each in rest} == {("192.0.2.7", "r1")}
            assert await stores.log.follow(rest[-1].number) == []
            one = AuditFilter(target="w3")
            assert [each.target for each in await stores.log.follow(0, one)] == ["w3"]

    @async_test
    async def test_follower_of_audit_log_misses_no_concurrent_entry(self, tmp_path: Path) -> None:
        async with self.make_access_stores(tmp_path) as stores:
            made = {each.id for each in (entry() for _ in range(MANY))}
            writing = asyncio.gather(*(stores.log.write(entry(id=each)) for each in made))
            place, followed = 0, set[str]()
            while not (over := writing.done()) or followed != made:
                page = await stores.log.follow(place, limit=7)
                followed |= {each.id for each in page}
                place = page[-1].number if page else place
                if over and not page:
                    break
                await asyncio.sleep(0)
            await writing
            assert followed == made

    @async_test
    async def test_audit_entry_written_twice_is_stored_once(self, tmp_path: Path) -> None:
        async with self.make_access_stores(tmp_path) as stores:
            same = entry()
            await stores.log.write(same)
            await stores.log.write(same)
            (found,) = await stores.log.read()
            assert msgspec.structs.replace(found, number=0) == same

    @async_test
    async def test_audit_entries_filter_by_actor_action_and_target(self, tmp_path: Path) -> None:
        async with self.make_access_stores(tmp_path) as stores:
            await stores.log.write(entry("workflow.deploy", "a", actor="local"))
            await stores.log.write(entry("workflow.hide", "b"))
            await stores.log.write(entry("workflows.other", "a", outcome="REFUSED"))

            async def found(**wanted: str) -> list[str]:
                return [each.action for each in await stores.log.read(AuditFilter(**wanted))]

            assert await found(action="workflow") == ["workflow.hide", "workflow.deploy"]
            assert await found(action="workflow.hide") == ["workflow.hide"]
            assert await found(action="work_low") == []
            assert await found(target="a") == ["workflows.other", "workflow.deploy"]
            assert await found(target="a", actor="local") == ["workflow.deploy"]
            assert await found(actor="unknown") == []

    def test_audit_entries_cannot_be_updated_or_deleted(self, tmp_path: Path) -> None:
        async def fill() -> None:
            async with self.make_access_stores(tmp_path) as stores:
                await stores.log.write(entry())

        asyncio.run(fill())
        for statement in ("UPDATE log SET actor = 'unknown'", "DELETE FROM log"):
            assert "only added to" in self.execute_directly(tmp_path, statement)
