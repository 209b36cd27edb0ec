"""Stores with one restricted user per role, and a fleet that uses them."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from rune.adapters.rabbitmq.topology import Topology, definitions, user_name
from rune.settings import Settings
from tests.lint.tree import ROOT
from tests.support.backends import NODES
from tests.support.clusters import Cluster, node_environment
from tests.support.in_process_cli import InProcessCli
from tests.support.services.fleet import Fleet, Role
from tests.support.services.keeper import RUN
from tests.support.services.postgres import database_of, server
from tests.support.services.rabbitmq import broker
from tests.support.services.redis_server import RedisServer

ROLES: tuple[Role, ...] = ("worker", "scheduler", "api")
FLEET_ROLES: tuple[Role, ...] = ("worker", "worker", "scheduler")
PREFIX = "limited"
PASSWORDS = {"owner": "o'o", "worker": "w w", "scheduler": "s/s", "api": "a@a", "watcher": "v", "master": "m"}


class Stores:
    """The URLs of a database, a Redis and optionally a broker for each role."""

    def __init__(self, folder: Path, state: RedisServer, vhost: str) -> None:
        self.folder = folder
        self.vhost = vhost
        self.database = database_of(folder)
        self._state = state
        self.admin = redis.Redis(unix_socket_path=state.socket, username="admin", password="all")

    def journal(self, role: str) -> str:
        """Without a password, since the test server trusts local connections."""
        return server().dsn(self.database).replace("//rune@", f"//rune_{role}@")

    def state(self, role: str) -> str:
        password = PASSWORDS[role].replace("/", "%2F").replace("@", "%40").replace(" ", "%20")
        return f"unix://{PREFIX}-{role}:{password}@{self._state.socket}"

    def queue(self, role: str) -> str:
        """In the same Redis, or at the broker, where all roles except workers share a user."""
        if not self.vhost:
            return self.state(role)
        user = role if role == "worker" else "master"
        return broker().url(self.vhost, user_name(user), PASSWORDS[user])

    def client(self, role: str) -> redis.Redis:
        """A Redis client with the user of a role."""
        return redis.Redis(
            unix_socket_path=self._state.socket, username=f"{PREFIX}-{role}", password=PASSWORDS[role]
        )

    def environment(self, role: str) -> dict[str, str]:
        return {
            "RUNE_JOURNAL": self.journal(role),
            "RUNE_STATE": self.state(role),
            "RUNE_QUEUE": self.queue(role),
            "RUNE_PREFIX": PREFIX,
        }

    def settings(self, role: str) -> Settings:
        return Settings(
            home=str(self.folder),
            journal=self.journal(role),
            state=self.state(role),
            queue=self.queue(role),
            prefix=PREFIX,
            nodes=NODES,
            http_allow=("127.0.0.1",),
        )

    def rune(self, role: str) -> InProcessCli:
        """The command line with the users of a role."""
        return InProcessCli(self.folder, **self.environment(role), RUNE_NODES=",".join(NODES))


def create_postgres_users(database: str) -> None:
    """Run `deploy/postgres/roles.sql` as an administrator does. The users belong to the server, which the processes of
    a test run share, and PostgreSQL refuses to change a user in two sessions at once."""
    postgres = server()
    passwords = [f"-v{role}_password={PASSWORDS[role]}" for role in ("owner", *ROLES)]
    with (Path(os.environ[RUN]) / "roles").open("a") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        subprocess.run(
            [
                "psql", "-Xq", "-h", str(postgres.folder), "-p", str(postgres.port), "-U", "rune", "-d", "postgres",
                f"-vdatabase={database}", *passwords, "-f", str(ROOT / "deploy" / "postgres" / "roles.sql"),
            ],
            check=True,
            capture_output=True,
            cwd="/",
        )  # fmt: skip


@contextmanager
def stores(folder: Path, carrier: str = "redis") -> Iterator[Stores]:
    """Create empty stores with the users of all roles."""
    if carrier == "redis":
        with _stores(folder, "") as made:
            yield made
        return
    with broker().vhost() as vhost:
        passwords = {role: PASSWORDS[role] for role in ("worker", "master")}
        broker().api("POST", "definitions", definitions(Topology(), vhost, passwords))
        with _stores(folder, vhost) as made:
            yield made


@contextmanager
def _stores(folder: Path, vhost: str) -> Iterator[Stores]:
    users = folder / "users.acl"
    users.touch()
    state = RedisServer("--aclfile", str(users))
    try:
        made = Stores(folder, state, vhost)
        create_postgres_users(made.database)
        passwords = {f"RUNE_PASSWORD_{role.upper()}": password for role, password in PASSWORDS.items()}
        lines = InProcessCli(folder, RUNE_PREFIX=PREFIX, **passwords).output("topology", "--redis-acl")
        users.write_text(f"{lines}user admin on >all ~* &* +@all\n")
        with redis.Redis(unix_socket_path=state.socket) as client:
            client.acl_load()
        yield made
        made.admin.close()
    finally:
        state.stop()


@contextmanager
def limited_fleet(made: Stores) -> Iterator[Cluster]:
    """Start two workers and a scheduler; tests use the role of the API."""
    with node_environment(made.folder) as (environment, sink):
        fleet = Fleet(made.folder, made.settings("api"), environment)
        try:
            for role in FLEET_ROLES:
                fleet.start(role, **made.environment(role))
            for each in fleet.processes:
                each.wait_ready()
            yield Cluster(fleet, sink)
        finally:
            fleet.stop()


def permission_errors(fleet: Fleet) -> list[str]:
    """The log lines of all processes that report a missing permission."""
    lines = [line for each in fleet.processes for line in each.output().splitlines()]
    signs = ("permission", "noperm", "access_refused", "access refused")
    return [line for line in lines if any(sign in line.lower() for sign in signs)]
