"""Stores whose users have the rights of their role and no others, and a fleet that runs under them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from rune.adapters.rabbitmq.topology import Topology, definitions, user_name
from rune.settings import Settings
from tests.acceptance.cli.here import Here
from tests.integration.cluster.standing import NODES, Standing, called
from tests.lint.tree import ROOT
from tests.support.services.fleet import Fleet, Role
from tests.support.services.postgres import database_of, server
from tests.support.services.rabbitmq import broker
from tests.support.services.redis_server import RedisServer

ROLES: tuple[Role, ...] = ("worker", "scheduler", "api")
CREW: tuple[Role, ...] = ("worker", "worker", "scheduler")
PREFIX = "limited"
WORDS = {"owner": "o'o", "worker": "w w", "scheduler": "s/s", "api": "a@a", "watcher": "v", "master": "m"}


class Stores:
    """A database and a Redis, as each role reaches them."""

    def __init__(self, folder: Path, state: RedisServer, vhost: str) -> None:
        self.folder = folder
        self.vhost = vhost
        self.database = database_of(folder)
        self._state = state
        self.admin = redis.Redis(unix_socket_path=state.socket, username="admin", password="all")

    def journal(self, role: str) -> str:
        """The tests' server trusts whoever comes from here, so the password is not in it."""
        return server().dsn(self.database).replace("//rune@", f"//rune_{role}@")

    def state(self, role: str) -> str:
        word = WORDS[role].replace("/", "%2F").replace("@", "%40").replace(" ", "%20")
        return f"unix://rune-{role}:{word}@{self._state.socket}"

    def queue(self, role: str) -> str:
        """In the same Redis, or at the broker, where schedulers and whoever asks are one user."""
        if not self.vhost:
            return self.state(role)
        user = role if role == "worker" else "master"
        return broker().url(self.vhost, user_name(user), WORDS[user])

    def client(self, role: str) -> redis.Redis:
        """Redis as a role, for whatever it may or may not do."""
        return redis.Redis(unix_socket_path=self._state.socket, username=f"rune-{role}", password=WORDS[role])

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

    def rune(self, role: str) -> Here:
        """The command line as somebody with this role."""
        return Here(self.folder, **self.environment(role), RUNE_NODES=",".join(NODES))


def users_of_postgres(database: str) -> None:
    """What an administrator does with the file that is in `deploy/`."""
    found = server()
    passwords = [f"-v{role}_password={WORDS[role]}" for role in ("owner", *ROLES)]
    subprocess.run(
        [
            "psql", "-Xq", "-h", str(found.folder), "-p", str(found.port), "-U", "rune", "-d", "postgres",
            f"-vdatabase={database}", *passwords, "-f", str(ROOT / "deploy" / "postgres" / "roles.sql"),
        ],
        check=True,
        capture_output=True,
        cwd="/",
    )  # fmt: skip


@contextmanager
def stores(folder: Path, carrier: str = "redis") -> Iterator[Stores]:
    """With users, and nothing in them."""
    if carrier == "redis":
        with _stores(folder, "") as made:
            yield made
        return
    with broker().vhost() as vhost:
        passwords = {role: WORDS[role] for role in ("worker", "master")}
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
        users_of_postgres(made.database)
        passwords = {f"RUNE_PASSWORD_{role.upper()}": word for role, word in WORDS.items()}
        lines = Here(folder, RUNE_PREFIX=PREFIX, **passwords).said("topology", "--redis-acl")
        users.write_text(f"{lines}user admin on >all ~* &* +@all\n")
        with redis.Redis(unix_socket_path=state.socket) as everybody:
            everybody.acl_load()
        yield made
        made.admin.close()
    finally:
        state.stop()


@contextmanager
def limited_fleet(made: Stores) -> Iterator[Standing]:
    """Two workers and a scheduler; whoever asks does it as the API."""
    with called(made.folder) as (environment, sink):
        fleet = Fleet(made.folder, made.settings("api"), environment)
        try:
            for role in CREW:
                fleet.start(role, **made.environment(role))
            for each in fleet.processes:
                each.wait_ready()
            yield Standing(fleet, sink)
        finally:
            fleet.stop()


def refused(fleet: Fleet) -> list[str]:
    """What any of its processes was not allowed to do."""
    lines = [line for each in fleet.processes for line in each.said().splitlines()]
    signs = ("permission", "noperm", "access_refused", "access refused")
    return [line for line in lines if any(sign in line.lower() for sign in signs)]
