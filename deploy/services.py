"""Redis, PostgreSQL and RabbitMQ for one checkout: private ports, folders and passwords, below `.services/`.

    python deploy/services.py up       start the servers and write redis.env and rabbitmq.env
    python deploy/services.py status   print which servers run
    python deploy/services.py down     stop them; their data stays

Needs only Python and the three servers. `set -a; . .services/redis.env` points Rune at them.
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

from private_server import HOST, Server, ServiceError, ServiceRecords, write_private

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "redis-server": "redis-server",
    "initdb": "postgresql",
    "rabbitmq-server": "rabbitmq-server",
    "epmd": "erlang-base",
}
NAME = "rune"
"""Name of the user and the database in every server."""


class Redis(Server):
    """Redis with an append-only file and without eviction."""

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

    def is_ready(self) -> bool:
        response = _probe(self.port, f"AUTH {self.password}\r\nPING\r\n".encode(), b"+PONG")
        return response == b"+OK\r\n+PONG\r\n"


class Postgres(Server):
    """One cluster with one database, over TCP only: the path of a Unix socket may be too long."""

    name = "postgres"
    user = "postgres"
    stop_signal = signal.SIGINT  # fast shutdown: does not wait for clients

    @property
    def url(self) -> str:
        return f"postgresql://{NAME}:{self.password}@{HOST}:{self.port}/{NAME}"

    def prepare(self) -> None:
        data, temporary = self.folder / "data", self.folder / "data.new"
        if data.exists():
            return
        shutil.rmtree(temporary, ignore_errors=True)  # left behind by an interrupted call
        password = self.write("password", self.password + "\n")
        try:
            self.run(
                str(self.programs["initdb"]), "-D", str(temporary), "-U", NAME, f"--pwfile={password}",
                "--auth=scram-sha-256", "-E", "UTF8", "--locale=C.UTF-8",
            )  # fmt: skip
        finally:
            password.unlink()
        temporary.rename(data)

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

    def is_ready(self) -> bool:
        try:
            return self._sql("SELECT 1") == "1"
        except ServiceError:
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
    """A node with its own epmd: the default one would be shared with other nodes and keep running."""

    name = "rabbitmq"
    user = "rabbitmq"
    epmd = "epmd"

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
        self.records.replace_taken_ports("rabbitmq-distribution")
        if self.records.process(self.epmd) is None:
            self.records.replace_taken_ports(self.epmd)
            port = str(self.records.port(self.epmd))
            self.start(self.epmd, [str(self.programs["epmd"]), "-port", port, "-address", HOST])
            self.wait(lambda: _probe(int(port), b"\0\1n", b"") is not None, self.epmd)

    def command(self) -> Sequence[str]:
        return [str(self.programs["rabbitmq-server"])]

    def environment(self) -> dict[str, str]:
        ours = hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]
        usual = {
            name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL_"))
        }
        return {
            **usual,
            "HOME": str(self.folder),  # contains the Erlang cookie
            "ERL_EPMD_PORT": str(self.records.port(self.epmd)),
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_NODENAME": f"{NAME}-{ours}@localhost",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_DIST_PORT": str(self.records.port("rabbitmq-distribution")),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "empty.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            # Inter-node ports are bound to this machine only.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    def is_ready(self) -> bool:
        """The broker listens only after its startup is complete."""
        response = _probe(self.port, b"AMQP\0\0\x09\1", b"RabbitMQ")
        return response is not None and response.startswith(b"\1\0\0")

    def down(self) -> str:
        result = super().down()
        self.stop(self.epmd)
        return result


def _probe(port: int, request: bytes, until: bytes) -> bytes | None:
    """Send bytes to a port and return the response up to a word or its end; None if the connection fails."""
    response = b""
    try:
        with socket.create_connection((HOST, port), timeout=2) as connection:
            connection.sendall(request)
            while (not until or until not in response) and (more := connection.recv(4096)):
                response += more
    except OSError:
        return None
    return response


def programs() -> dict[str, Path]:
    """Return the paths of the server programs; the error lists all missing ones."""
    found = {name: _program(name) for name in PACKAGES}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        named = ", ".join(f"{name} (package {PACKAGES[name]})" for name in missing)
        packages = " ".join(dict.fromkeys(PACKAGES[name] for name in missing))
        raise ServiceError(f"not installed: {named}\ntry: apt-get install --no-install-recommends {packages}")
    return {name: path for name, path in found.items() if path is not None}


def _program(name: str) -> Path | None:
    """Debian installs the programs of PostgreSQL outside PATH, and its RabbitMQ wrapper rejects other users."""
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
    """Return the settings of Rune by file name."""
    redis = {
        "RUNE_JOURNAL": servers["postgres"].url,
        "RUNE_STATE": servers["redis"].url,
        "RUNE_QUEUE": servers["redis"].url,
        "RUNE_BLOB": "embedded",  # in the same database
    }
    return {"redis.env": redis, "rabbitmq.env": {**redis, "RUNE_QUEUE": servers["rabbitmq"].url}}


def up(folder: Path, servers: Mapping[str, Server]) -> None:
    for name, server in servers.items():
        echo(f"{name}: {server.up()}")
    for name, values in environments(servers).items():
        write_private(folder / name, "".join(f"{key}={value}\n" for key, value in values.items()))
        echo(f"settings: {folder / name}")


def down(servers: Mapping[str, Server]) -> None:
    for name in reversed(list(servers)):
        echo(f"{name}: {servers[name].down()}")


def status(servers: Mapping[str, Server]) -> bool:
    statuses = {name: server.status() for name, server in servers.items()}
    for name, text in statuses.items():
        echo(f"{name}: {text}")
    return all(text.startswith("runs on") for text in statuses.values())


def echo(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Serialise concurrent calls with a lock file."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711)  # the server users need to traverse it; secret files have their own mode
    (folder / ".gitignore").write_text("*\n")
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 on success; for `status`, 0 if all servers run, else 1."""
    parser = argparse.ArgumentParser(description="Redis, PostgreSQL and RabbitMQ for this checkout.")
    parser.add_argument("act", choices=["up", "down", "status"])
    parser.add_argument("--folder", type=Path, default=ROOT / ".services", help="folder of the servers")
    options = parser.parse_args(arguments)
    folder: Path = options.folder.resolve()
    try:
        if options.act != "up" and not folder.exists():
            echo("no servers were started in this folder")
            return int(options.act == "status")
        # A running server is stopped even if its program was removed.
        found = {} if options.act == "down" else programs()
        with exclusive(folder):
            records = ServiceRecords(folder)
            servers = {kind.name: kind(records, found) for kind in (Redis, Postgres, RabbitMQ)}
            if options.act == "up":
                up(folder, servers)
            elif options.act == "down":
                down(servers)
            else:
                return int(not status(servers))
    except ServiceError as trouble:
        sys.stderr.write(f"{trouble}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
