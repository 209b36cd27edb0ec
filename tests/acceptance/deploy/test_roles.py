"""Each role has users that can do what it needs and nothing else, in every store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from rune.adapters.postgres.roles import ROLES
from rune.adapters.redis.checks import COMMANDS
from tests.acceptance.cli.here import Here
from tests.acceptance.cli.process import until
from tests.acceptance.conformance.case import load, load_steps
from tests.acceptance.deploy.limited import PREFIX, Stores, limited_fleet, refused, stores
from tests.integration.cluster.cases import run_cases, walk_cases
from tests.integration.cluster.commands import GATED, named
from tests.integration.cluster.standing import Standing
from tests.lint.tree import ROOT
from tests.support.services.postgres import server
from tests.support.whole import WHOLE

EVERY = 1 if WHOLE else 20
CARRIERS = ("redis", "rabbitmq") if WHOLE else ("redis",)
REDIS = ROOT / "src" / "rune" / "adapters" / "redis"


@pytest.fixture(scope="module", params=CARRIERS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with stores(tmp_path_factory.mktemp("limited"), request.param) as found:
        told = found.rune("owner").json("migrate", "--roles")
        assert told["roles"] == list(ROLES)
        yield found


@pytest.fixture(scope="module")
def stood(made: Stores) -> Iterator[Standing]:
    with limited_fleet(made) as found:
        yield found


def tried(made: Stores, role: str, statement: str) -> str:
    """What PostgreSQL says to a role; nothing if it does as it is told. Nothing of it stays."""

    async def ask() -> str:
        connection = await asyncpg.connect(made.journal(role))
        try:
            undone = connection.transaction()
            await undone.start()
            try:
                await connection.execute(statement)
            finally:
                await undone.rollback()
        except asyncpg.InsufficientPrivilegeError as error:
            return str(error)
        finally:
            await connection.close()
        return ""

    return asyncio.run(ask())


def gated(folder: Path, name: str) -> str:
    """A file with a workflow that waits for a signal."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps(named(GATED, name)))
    return str(path)


def waits(rune: Here, execution: str) -> None:
    """Until it waits for its signal."""
    until(lambda: bool(rune.json("explain", execution)["waiting"]) or None, f"{execution} waits")


def output(rune: Here, execution: str) -> Any:
    """Of an execution, once it has ended."""
    until(lambda: rune.json("show", execution)["completed_at"], f"{execution} has ended")
    return rune.json("show", execution)["output"]


class TestFleet:
    def test_conformance_cases_end_as_they_must(self, made: Stores, stood: Standing) -> None:
        made.admin.acl_log_reset()
        before = len(refused(stood.fleet))
        assert asyncio.run(run_cases(stood, load()[::EVERY])) == {}
        assert asyncio.run(walk_cases(stood, load_steps()[::EVERY])) == {}
        assert made.rune("api").json("audit", "--all")["violations"] == 0
        assert len(refused(stood.fleet)) == before
        assert made.admin.acl_log() == []

    def test_whoever_asks_does_it_as_the_api(self, made: Stores, stood: Standing, tmp_path: Path) -> None:
        rune = made.rune("api")
        made.admin.acl_log_reset()
        assert rune.json("deploy", gated(tmp_path, "asked"), "--alias", "stable")["version"] == 1
        it = rune.json("start", "asked@stable", "--input", '{"n": 1}', "--key", "k")["execution_id"]
        waits(rune, it)
        rune.json("pause", it)
        rune.json("resume", it)
        rune.json("signal", it, "go", "--value", "2")
        assert output(rune, it) == [1, 2]
        assert rune("credentials", "add", "shop", "--type", "bearer", "--json", stdin="t").exit_code == 0
        assert rune("credentials", "rotate", "shop", "--json", stdin="u").exit_code == 0
        rune.json("credentials", "remove", "shop")
        assert made.rune("worker").json("doctor")["status"] == "ok"
        assert len(rune.json("workers")["workers"]) == 3
        assert made.admin.acl_log() == []
        removed = made.rune("scheduler").json("gc", "--workflow", "asked", "--keep", "0")
        assert removed["executions"] == 1
        assert rune.json("list", "--workflow", "asked")["executions"] == []

    def test_nothing_ends_for_want_of_a_right(self, made: Stores, stood: Standing, tmp_path: Path) -> None:
        """As between a new version's steps and the rights to what they brought."""
        rune = made.rune("api")
        rune.json("deploy", gated(tmp_path, "lacking"))
        server().sql("REVOKE INSERT ON fact FROM rune_worker", made.database)
        it = rune.json("start", "lacking", "--input", '{"n": 1}')["execution_id"]
        until(lambda: refused(stood.fleet) or None, "a worker was refused")
        assert rune.json("show", it)["status"] == "running"
        made.rune("owner").json("migrate", "--roles")
        waits(rune, it)
        rune.json("signal", it, "go", "--value", "2")
        assert output(rune, it) == [1, 2]


class TestPostgres:
    @pytest.mark.parametrize("role", ["worker", "scheduler", "api"])
    @pytest.mark.parametrize(
        "statement",
        [
            "CREATE TABLE mine (n integer)",
            "CREATE TEMPORARY TABLE mine (n integer)",
            "CREATE SCHEMA mine",
            "CREATE FUNCTION mine() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
            "ALTER TABLE fact ADD COLUMN mine integer",
            "DROP TABLE fact",
            "TRUNCATE fact",
            "UPDATE fact SET late = true",
            "UPDATE rune_migration SET number = 99",
            "DROP FUNCTION log_stays() CASCADE",
            "DELETE FROM log",
            "COPY fact TO PROGRAM 'true'",
        ],
    )
    def test_nobody_changes_the_schema_or_what_was_recorded(
        self, made: Stores, role: str, statement: str
    ) -> None:
        assert tried(made, role, statement) != ""

    @pytest.mark.parametrize(
        "statement",
        [
            "SELECT digest FROM api_key",
            "UPDATE credential SET version = 2",
            "INSERT INTO credential_grant (credential, whom) VALUES ('x', '[]')",
            "UPDATE alias SET number = 1",
            "DELETE FROM fact",
            "SELECT details FROM log",
        ],
    )
    def test_a_worker_changes_nothing_that_is_not_its_own(self, made: Stores, statement: str) -> None:
        assert "permission denied" in tried(made, "worker", statement)

    def test_every_table_is_somebodys(self, made: Stores) -> None:
        """A step of the schema that brings a table has to say who may use it."""
        found = server().sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'", made.database)
        assert set(found.split()) == {table for tables in ROLES.values() for table in tables}

    def test_rights_that_somebody_gave_by_hand_are_taken_back(self, made: Stores) -> None:
        server().sql("GRANT DELETE ON fact TO rune_worker", made.database)
        assert tried(made, "worker", "DELETE FROM fact") == ""
        assert made.rune("owner").json("migrate", "--roles")["steps"] == []
        assert tried(made, "worker", "DELETE FROM fact") != ""

    def test_a_role_does_not_migrate(self, made: Stores) -> None:
        told = made.rune("worker").json("migrate", "--roles", code=3)
        assert "permission denied" in told["problems"][0]["message"]


class TestRedis:
    @pytest.mark.parametrize("role", ["worker", "scheduler", "api", "watcher"])
    @pytest.mark.parametrize(
        "command",
        [
            "KEYS *",
            "FLUSHALL",
            "FLUSHDB",
            "CONFIG GET dir",
            "SHUTDOWN NOSAVE",
            "SAVE",
            "MONITOR",
            "REPLICAOF NO ONE",
            "SCRIPT FLUSH",
            "FUNCTION FLUSH",
            "FUNCTION DUMP",
            "CLIENT LIST",
            "CLIENT KILL TYPE normal",
            "ACL LIST",
            "MODULE LIST",
            "SWAPDB 0 1",
            "MIGRATE localhost 1 limited:x 0 1",
            "EVAL return(1) 0",
            f"RESTORE {PREFIX}:x 0 x",
            "SET other:x 1",
            "GET other:x",
            "PUBLISH other:x 1",
        ],
    )
    def test_what_is_not_needed_is_refused(self, made: Stores, role: str, command: str) -> None:
        with made.client(role) as client, pytest.raises(redis.exceptions.NoPermissionError):
            client.execute_command(*command.split())

    def test_a_function_of_ones_own_reaches_no_further(self, made: Stores) -> None:
        text = "#!lua name=own\nredis.register_function('own', function() return redis.call('GET', 'other:x') end)"
        with made.client("worker") as client:
            client.function_load(text)
            with pytest.raises(
                redis.exceptions.ResponseError, match=r"can.t access at least one of the keys"
            ):
                client.fcall("own", 0)
        made.admin.function_delete("own")

    def test_whoever_measures_changes_nothing(self, made: Stores) -> None:
        with made.client("watcher") as client:
            assert client.xlen(f"{PREFIX}:{{p00}}:stream:default:normal") == 0
            for command in (f"SET {PREFIX}:x 1", f"XADD {PREFIX}:s * a 1", "FCALL x 0", f"DEL {PREFIX}:x"):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    client.execute_command(*command.split())

    def test_who_does_not_log_in_does_nothing(self, made: Stores) -> None:
        path = made.state("worker").rpartition("@")[2]
        once = Retry(NoBackoff(), 0)
        nobody = redis.Redis(unix_socket_path=path, retry=once)
        with nobody as client, pytest.raises(redis.exceptions.AuthenticationError):
            client.ping()

    def test_nothing_is_allowed_that_no_code_asks_for(self) -> None:
        text = "\n".join(
            path.read_text(encoding="utf-8")
            for path in (*REDIS.glob("*.py"), *REDIS.glob("scripts/*.lua"))
            if path.name != "acl.py"
        )
        also = {"ping"}  # what asks how quickly the server answers
        unused = {each for each in COMMANDS if each.partition("|")[0].upper() not in text} - also
        assert unused == set()
