"""Redis, PostgreSQL and RabbitMQ for one checkout: private ports, folders and passwords, below `.services/`.

    python deploy/services.py up       start what does not run, and write redis.env and rabbitmq.env
    python deploy/services.py status   say what runs
    python deploy/services.py down     stop what `up` has started; what they hold stays

Needs nothing but Python and the three servers. `set -a; . .services/redis.env` points Rune at them.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from private_server import HOST, Memory, Server, Trouble, write_private

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "redis-server": "redis-server",
    "initdb": "postgresql",
    "rabbitmq-server": "rabbitmq-server",
    "epmd": "erlang-base",
}
NAME = "rune"
"""User, database and owner of everything here."""


class Redis(Server):
    """Keeps what it was told across a restart, and never throws anything away to make room."""

    name = "redis"

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@{HOST}:{self.port}/0"

    def prepare(self) -> None:
        lines = {
            "bind": HOST,
            "port": str(self.port),
            "dir": ".",
            "daemonize": "no",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": '""',
            "maxmemory-policy": "noeviction",
            "requirepass": self.password,
        }
        self.write("redis.conf", "".join(f"{name} {value}\n" for name, value in lines.items()))

    def command(self) -> Sequence[str]:
        return [str(self.programs["redis-server"]), str(self.folder / "redis.conf")]

    def answers(self) -> bool:
        said = _asked(self.port, f"AUTH {self.password}\r\nPING\r\n".encode(), b"+PONG")
        return said == b"+OK\r\n+PONG\r\n"


class Postgres(Server):
    """One cluster with one database. It speaks over TCP only: the path of a socket may be too long for one."""

    name = "postgres"
    user = "postgres"
    goodbye = signal.SIGINT  # does not wait until everybody has left

    @property
    def url(self) -> str:
        return f"postgresql://{NAME}:{self.password}@{HOST}:{self.port}/{NAME}"

    def prepare(self) -> None:
        data, passing = self.folder / "data", self.folder / "data.new"
        if data.exists():
            return
        shutil.rmtree(passing, ignore_errors=True)  # of a call that was interrupted
        password = self.write("password", self.password + "\n")
        try:
            self.run(
                str(self.programs["initdb"]), "-D", str(passing), "-U", NAME, f"--pwfile={password}",
                "--auth=scram-sha-256", "-E", "UTF8", "--locale=C.UTF-8",
            )  # fmt: skip
        finally:
            password.unlink()
        passing.rename(data)

    def command(self) -> Sequence[str]:
        settings = {
            "port": str(self.port),
            "listen_addresses": HOST,
            "unix_socket_directories": "",
            "max_connections": "200",
            "timezone": "UTC",
        }
        given = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [str(self._program("postgres")), "-D", str(self.folder / "data"), *given]

    def answers(self) -> bool:
        try:
            return self._sql("SELECT 1") == "1"
        except Trouble:
            return False

    def complete(self) -> None:
        if self._sql(f"SELECT 1 FROM pg_database WHERE datname = '{NAME}'") != "1":
            self._sql(f"CREATE DATABASE {NAME}")

    def _sql(self, text: str) -> str:
        return self.run(
            str(self._program("psql")), "-XqAtw", "-h", HOST, "-p", str(self.port), "-U", NAME, "-d", "postgres",
            "-c", text, PGPASSWORD=self.password, PGCONNECT_TIMEOUT="5",
        )  # fmt: skip

    def _program(self, name: str) -> Path:
        return self.programs["initdb"].resolve().with_name(name)


class RabbitMQ(Server):
    """A node of its own, with an epmd of its own: the usual one would be shared with every other node here, and would
    stay behind."""

    name = "rabbitmq"
    user = "rabbitmq"
    registry = "epmd"

    @property
    def url(self) -> str:
        return f"amqp://{NAME}:{self.password}@{HOST}:{self.port}/%2F"

    def prepare(self) -> None:
        lines = {
            "listeners.tcp.1": f"{HOST}:{self.port}",
            "default_user": NAME,
            "default_pass": self.password,
            "log.file": "false",
            "log.console": "true",
        }
        self.write("rabbitmq.conf", "".join(f"{name} = {value}\n" for name, value in lines.items()))
        self.write("enabled_plugins", "[].\n")
        self.write("empty.conf", "")
        self.memory.settle("rabbitmq-distribution")
        if self.memory.process(self.registry) is None:
            self.memory.settle(self.registry)
            port = str(self.memory.port(self.registry))
            self.start(self.registry, [str(self.programs["epmd"]), "-port", port, "-address", HOST])
            self.wait(lambda: _asked(int(port), b"\0\1n", b"") is not None, self.registry)

    def command(self) -> Sequence[str]:
        return [str(self.programs["rabbitmq-server"])]

    def environment(self) -> dict[str, str]:
        ours = hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]
        usual = {
            name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL_"))
        }
        return {
            **usual,
            "HOME": str(self.folder),  # where the cookie is
            "ERL_EPMD_PORT": str(self.memory.port(self.registry)),
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_NODENAME": f"{NAME}-{ours}@localhost",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_DIST_PORT": str(self.memory.port("rabbitmq-distribution")),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "empty.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            # Nobody but this machine has business between nodes.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    def answers(self) -> bool:
        """It listens only when everything else is done."""
        said = _asked(self.port, b"AMQP\0\0\x09\1", b"RabbitMQ")
        return said is not None and said.startswith(b"\1\0\0")

    def down(self) -> str:
        said = super().down()
        self.stop(self.registry)
        return said


def _asked(port: int, question: bytes, until: bytes) -> bytes | None:
    """What somebody says on a port, up to a word or the end; None if nobody does."""
    said = b""
    try:
        with socket.create_connection((HOST, port), timeout=2) as line:
            line.sendall(question)
            while (not until or until not in said) and (more := line.recv(4096)):
                said += more
    except OSError:
        return None
    return said


def programs() -> dict[str, Path]:
    """Where the servers are; complains about all that are missing at once."""
    found = {name: _program(name) for name in PACKAGES}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        named = ", ".join(f"{name} (package {PACKAGES[name]})" for name in missing)
        packages = " ".join(dict.fromkeys(PACKAGES[name] for name in missing))
        raise Trouble(f"not installed: {named}\ntry: apt-get install --no-install-recommends {packages}")
    return {name: path for name, path in found.items() if path is not None}


def _program(name: str) -> Path | None:
    """Debian keeps the programs of PostgreSQL out of the path, and puts a guard before those of RabbitMQ that lets
    nothing of ours through."""
    library = Path("/usr/lib")
    aside = {
        "initdb": sorted(library.glob("postgresql/*/bin/initdb"), key=lambda each: float(each.parts[-3])),
        "rabbitmq-server": list(library.glob("rabbitmq/bin/rabbitmq-server")),
    }.get(name, [])
    known = shutil.which(name)
    if aside and (known is None or name == "rabbitmq-server"):
        return aside[-1]
    return Path(known) if known else None


def environments(servers: Mapping[str, Server]) -> dict[str, dict[str, str]]:
    """Settings of Rune, by the name of their file."""
    redis = {
        "RUNE_JOURNAL": servers["postgres"].url,
        "RUNE_STATE": servers["redis"].url,
        "RUNE_QUEUE": servers["redis"].url,
        "RUNE_BLOB": "embedded",  # in the same database
    }
    return {"redis.env": redis, "rabbitmq.env": {**redis, "RUNE_QUEUE": servers["rabbitmq"].url}}


def up(folder: Path, servers: Mapping[str, Server]) -> None:
    for name, server in servers.items():
        say(f"{name}: {server.up()}")
    for name, values in environments(servers).items():
        write_private(folder / name, "".join(f"{key}={value}\n" for key, value in values.items()))
        say(f"settings: {folder / name}")


def down(servers: Mapping[str, Server]) -> None:
    for name in reversed(list(servers)):
        say(f"{name}: {servers[name].down()}")


def status(servers: Mapping[str, Server]) -> bool:
    said = {name: server.status() for name, server in servers.items()}
    for name, text in said.items():
        say(f"{name}: {text}")
    return all(text.startswith("runs on") for text in said.values())


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One call at a time; a second one waits."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711)  # the users of the servers pass through; what is secret is closed by itself
    (folder / ".gitignore").write_text("*\n")
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(given: Sequence[str] | None = None) -> int:
    """0: done, and at `status`: all run. 1: not so."""
    parser = argparse.ArgumentParser(description="Redis, PostgreSQL and RabbitMQ for this checkout.")
    parser.add_argument("act", choices=["up", "down", "status"])
    parser.add_argument("--folder", type=Path, default=ROOT / ".services", help="where they live")
    asked = parser.parse_args(given)
    folder: Path = asked.folder.resolve()
    try:
        if asked.act != "up" and not folder.exists():
            say("nothing was ever started here")
            return int(asked.act == "status")
        found = (
            {} if asked.act == "down" else programs()
        )  # what runs is stopped, whatever became of its program
        with alone(folder):
            memory = Memory(folder)
            servers = {kind.name: kind(memory, found) for kind in (Redis, Postgres, RabbitMQ)}
            if asked.act == "up":
                up(folder, servers)
            elif asked.act == "down":
                down(servers)
            else:
                return int(not status(servers))
    except Trouble as trouble:
        sys.stderr.write(f"{trouble}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
