"""The user of each role has exactly the permissions that it needs, in every store."""

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

from rune.adapters.postgres.schema import ROLES
from rune.adapters.redis.client import library
from rune.adapters.redis.stores import COMMANDS
from tests.acceptance.conformance.case import load, load_steps
from tests.acceptance.deploy.role_stores import PREFIX, Stores, limited_fleet, permission_errors, stores
from tests.lint.tree import ROOT
from tests.support.cli_process import until
from tests.support.cluster_cli import GATED, with_id
from tests.support.cluster_conformance import run_cases, walk_cases
from tests.support.clusters import Cluster
from tests.support.in_process_cli import InProcessCli
from tests.support.services.postgres import server
from tests.support.whole import WHOLE

EVERY = 1 if WHOLE else 20
CARRIERS = ("redis", "rabbitmq") if WHOLE else ("redis",)
REDIS = ROOT / "src" / "rune" / "adapters" / "redis"


@pytest.fixture(scope="module", params=CARRIERS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with stores(tmp_path_factory.mktemp("limited"), request.param) as found:
        migrated = found.rune("owner").json("migrate", "--roles")
        assert migrated["roles"] == list(ROLES)
        yield found


@pytest.fixture(scope="module")
def cluster(made: Stores) -> Iterator[Cluster]:
    with limited_fleet(made) as found:
        yield found


def denial(made: Stores, role: str, statement: str) -> str:
    """The permission error of a statement, which is rolled back; empty if it is allowed."""

    async def execute() -> str:
        connection = await asyncpg.connect(made.journal(role))
        try:
            transaction = connection.transaction()
            await transaction.start()
            try:
                await connection.execute(statement)
            finally:
                await transaction.rollback()
        except asyncpg.InsufficientPrivilegeError as error:
            return str(error)
        finally:
            await connection.close()
        return ""

    return asyncio.run(execute())


def gated(folder: Path, name: str) -> str:
    """A file with a workflow that waits for a signal."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps(with_id(GATED, name)))
    return str(path)


def wait_until_waiting(rune: InProcessCli, execution: str) -> None:
    """Wait until an execution waits for its signal."""
    until(lambda: bool(rune.json("explain", execution)["waiting"]) or None, f"{execution} waits")


def output(rune: InProcessCli, execution: str) -> Any:
    """Wait for the end of an execution and return its output."""
    until(lambda: rune.json("show", execution)["completed_at"], f"{execution} has ended")
    return rune.json("show", execution)["output"]


class TestFleet:
    def test_conformance_cases_pass_with_restricted_roles(self, made: Stores, cluster: Cluster) -> None:
        made.admin.acl_log_reset()
        before = len(permission_errors(cluster.fleet))
        assert asyncio.run(run_cases(cluster, load()[::EVERY])) == {}
        assert asyncio.run(walk_cases(cluster, load_steps()[::EVERY])) == {}
        assert made.rune("api").json("verify", "--all")["violations"] == 0
        assert len(permission_errors(cluster.fleet)) == before
        assert made.admin.acl_log() == []

    def test_api_role_suffices_for_commands(self, made: Stores, cluster: Cluster, tmp_path: Path) -> None:
        rune = made.rune("api")
        made.admin.acl_log_reset()
        assert rune.json("deploy", gated(tmp_path, "asked"), "--alias", "stable")["version"] == 1
        it = rune.json("start", "asked@stable", "--input", '{"n": 1}', "--key", "k")["execution_id"]
        wait_until_waiting(rune, it)
        rune.json("pause", it)
        rune.json("resume", it)
        rune.json("signal", it, "go", "--value", "2")
        assert output(rune, it) == [1, 2]
        assert (
            rune(
                "credentials", "add", "shop", "--type", "bearer", "--host", "*", "--json", stdin="t"
            ).exit_code
            == 0
        )
        assert rune("credentials", "rotate", "shop", "--json", stdin="u").exit_code == 0
        rune.json("credentials", "remove", "shop")
        assert made.rune("worker").json("doctor")["status"] == "ok"
        assert len(rune.json("workers")["workers"]) == 3
        assert made.admin.acl_log() == []
        removed = made.rune("scheduler").json("prune", "--workflow", "asked", "--keep", "0")
        assert removed["executions"] == 1
        assert rune.json("list", "--workflow", "asked")["executions"] == []

    @pytest.mark.parametrize("role", ["owner", "worker", "scheduler", "api"])
    def test_doctor_finds_nothing_bad_for_the_user_of_a_role(
        self, role: str, made: Stores, cluster: Cluster
    ) -> None:
        checks = made.rune(role).json("doctor")["checks"]
        assert [each for each in checks if each["verdict"] == "bad"] == []
        (rights,) = (each for each in checks if each["check"] == "redis rights")
        assert ("rune migrate" in rights["found"]) == (role == "owner")
        assert ("workers" in [each["check"] for each in checks]) == (role != "owner")

    def test_doctor_names_the_right_that_a_user_of_redis_lacks(self, made: Stores, cluster: Cluster) -> None:
        made.admin.acl_setuser(
            "timeless",
            enabled=True,
            passwords=["+t"],
            keys=["*"],
            channels=["*"],
            commands=["+@all", "-time"],
        )
        state = made.state("api").replace(made.state("api").partition("@")[0], "unix://timeless:t")
        rune = InProcessCli(
            made.folder, **{**made.environment("api"), "RUNE_STATE": state, "RUNE_QUEUE": state}
        )
        (found,) = (each for each in rune.json("doctor", code=1)["checks"] if each["check"] == "redis")
        assert found["verdict"] == "bad"
        assert "time" in found["found"]
        assert "ACL" in found["advice"]
        assert "running" not in found["advice"]

    def test_vacuum_names_the_owner_and_deletes_nothing(
        self, made: Stores, cluster: Cluster, tmp_path: Path
    ) -> None:
        rune = made.rune("api")
        rune.json("deploy", gated(tmp_path, "kept"))
        it = rune.json("start", "kept", "--input", '{"n": 1}')["execution_id"]
        rune.json("cancel", it)
        refused = rune("prune", "--workflow", "kept", "--keep", "0", "--vacuum")
        assert (refused.exit_code, "may not rewrite the tables" in refused.stderr) == (3, True), (
            refused.output
        )
        owner = server().sql("SELECT tableowner FROM pg_tables WHERE tablename = 'fact'", made.database)
        assert f"owner, {owner}" in refused.stderr
        assert rune.json("show", it)["status"] == "cancelled"
        files = "SELECT string_agg(relfilenode::text, ',' ORDER BY oid) FROM pg_class WHERE relname = 'fact'"
        before = server().sql(files, made.database)
        assert made.rune("owner")("prune", "--vacuum").exit_code == 0
        assert server().sql(files, made.database) != before

    def test_missing_permission_does_not_fail_execution(
        self, made: Stores, cluster: Cluster, tmp_path: Path
    ) -> None:
        """Permissions are missing between the migration to a new version and the grants for its tables."""
        rune = made.rune("api")
        rune.json("deploy", gated(tmp_path, "unpermitted"))
        server().sql("REVOKE INSERT ON fact FROM rune_worker", made.database)
        it = rune.json("start", "unpermitted", "--input", '{"n": 1}')["execution_id"]
        until(lambda: permission_errors(cluster.fleet) or None, "a worker reports a permission error")
        assert rune.json("show", it)["status"] == "running"
        made.rune("owner").json("migrate", "--roles")
        wait_until_waiting(rune, it)
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
    def test_roles_cannot_change_schema_or_history(self, made: Stores, role: str, statement: str) -> None:
        assert denial(made, role, statement) != ""

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
    def test_worker_cannot_access_foreign_tables(self, made: Stores, statement: str) -> None:
        assert "permission denied" in denial(made, "worker", statement)

    def test_every_table_is_granted_to_a_role(self, made: Stores) -> None:
        """A migration that adds a table has to grant it to a role."""
        found = server().sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'", made.database)
        assert set(found.split()) == {table for tables in ROLES.values() for table in tables}

    def test_migrate_revokes_manual_grants(self, made: Stores) -> None:
        server().sql("GRANT DELETE ON fact TO rune_worker", made.database)
        assert denial(made, "worker", "DELETE FROM fact") == ""
        assert made.rune("owner").json("migrate", "--roles")["steps"] == []
        assert denial(made, "worker", "DELETE FROM fact") != ""

    def test_worker_role_cannot_migrate(self, made: Stores) -> None:
        failed = made.rune("worker").json("migrate", "--roles", code=3)
        assert "permission denied" in failed["problems"][0]["message"]


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
            "FUNCTION LOAD x",
            "FUNCTION LOAD REPLACE x",
            "FUNCTION RESTORE x",
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
    def test_unneeded_command_is_denied(self, made: Stores, role: str, command: str) -> None:
        with made.client(role) as client, pytest.raises(redis.exceptions.NoPermissionError):
            client.execute_command(*command.split())

    def test_processes_wait_until_owner_has_loaded_functions(self, made: Stores) -> None:
        made.admin.function_flush()
        for role in ("worker", "scheduler", "api"):
            (problem,) = made.rune(role).json("workers", code=3)["problems"]
            assert problem["code"] == "FUNCTIONS_MISSING"
            assert problem["message"].endswith("run `rune migrate` as the owner of the stores")
        (loaded,) = made.rune("owner").json("migrate")["steps"]
        assert loaded == f"functions of Redis ({library(PREFIX).name})"
        assert "workers" in made.rune("worker").json("workers")

    @pytest.mark.parametrize("command", [f"GET {PREFIX}:x", f"SET {PREFIX}:x 1", "FCALL x 0", "FLUSHALL"])
    def test_owner_accesses_no_key(self, made: Stores, command: str) -> None:
        with made.client("owner") as client, pytest.raises(redis.exceptions.NoPermissionError):
            client.execute_command(*command.split())

    def test_watcher_is_read_only(self, made: Stores) -> None:
        with made.client("watcher") as client:
            assert client.xlen(f"{PREFIX}:{{p00}}:stream:default:normal") == 0
            for command in (f"SET {PREFIX}:x 1", f"XADD {PREFIX}:s * a 1", "FCALL x 0", f"DEL {PREFIX}:x"):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    client.execute_command(*command.split())

    def test_client_without_login_is_denied(self, made: Stores) -> None:
        path = made.state("worker").rpartition("@")[2]
        once = Retry(NoBackoff(), 0)
        anonymous = redis.Redis(unix_socket_path=path, retry=once)
        with anonymous as client, pytest.raises(redis.exceptions.AuthenticationError):
            client.ping()

    def test_allowed_commands_are_used_in_code(self) -> None:
        text = "\n".join(
            path.read_text(encoding="utf-8")
            for path in (*REDIS.rglob("*.py"), *REDIS.rglob("*.lua"))
            if path.name != "acl.py"
        )
        also = {"ping"}  # measures latency
        unused = {each for each in COMMANDS if each.partition("|")[0].upper() not in text} - also
        assert unused == set()
