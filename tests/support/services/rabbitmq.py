"""RabbitMQ: one broker per test run, on which each test uses its own vhost, and private ones to stop or kill."""

from __future__ import annotations

import atexit
import base64
import contextlib
import functools
import http.client
import itertools
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.support.services.keeper import memory_folder, shared, spawn_bound

TIMEOUT_S = 120.0  # s; a busy machine starts a broker slowly
PROGRAMS = Path("/usr/lib/rabbitmq/bin")
USER = PASSWORD = "guest"
CONFIG = """
listeners.tcp.1 = 127.0.0.1:{amqp}
management.tcp.ip = 127.0.0.1
management.tcp.port = {management}
management.disable_stats = true
management_agent.disable_metrics_collector = true
log.console = false
log.file.level = warning
vm_memory_high_watermark.absolute = 2GB
disk_free_limit.absolute = 1MB
queue_index_embed_msgs_below = 4096
channel_max = 2047
"""
BEAM = "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none"  # spinning schedulers would starve the tests
_vhosts = itertools.count()


class CommandRefusedError(Exception):
    """A command or a request to the management interface failed."""


def free_ports(count: int) -> list[int]:
    """Return free ports below the ephemeral range: a broker that was killed must be able to bind them again."""
    found: list[int] = []
    for port in range(10_000 + os.getpid() * 7 % 20_000, 32_000):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError("no free ports")


class Broker:
    """One broker. `start` after `kill` recovers from its files."""

    def __init__(self, folder: Path, ports: list[int], config: str = "") -> None:
        self.folder = folder
        self.ports = ports
        self.port, self._management, self._distribution, self._names = ports
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None
        self._epmd: subprocess.Popen[bytes] | None = None

    @property
    def _environment(self) -> dict[str, str]:
        base = {name: value for name, value in os.environ.items() if not name.startswith("RABBITMQ_")}
        base.pop("NOTIFY_SOCKET", None)
        return {
            **base,
            "HOME": str(self.folder),  # the location of the Erlang cookie
            "RABBITMQ_NODENAME": f"rune{self.port}@localhost",
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_DIST_PORT": str(self._distribution),
            "RABBITMQ_ALLOW_INPUT": "1",  # the script execs the broker instead of starting a child
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": BEAM,
            "ERL_EPMD_PORT": str(self._names),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }

    def make(self) -> None:
        """Write the configuration files."""
        text = CONFIG.format(amqp=self.port, management=self._management) + self._config
        (self.folder / "rabbitmq.conf").write_text(text)
        (self.folder / "plugins").write_text("[rabbitmq_management].\n")

    def start(self) -> None:
        """Start the broker unless it responds, and wait until it does."""
        if self._epmd is None:
            self._epmd = self._spawned("epmd")
        until = time.monotonic() + TIMEOUT_S
        while not self._responds():
            if time.monotonic() > until:
                self.stop()
                raise RuntimeError((self.folder / "out").read_text()[-2000:])
            # The server exits if epmd still has the name of the killed one; it is then started again.
            if self._process is None or self._process.poll() is not None:
                self._process = self._spawned(str(PROGRAMS / "rabbitmq-server"), "-noinput")
            select.select([], [], [], 0.05)

    def _spawned(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a process that is killed with this one."""
        with (self.folder / "out").open("ab") as out:
            return spawn_bound(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    def _responds(self) -> bool:
        """Check AMQP, whose listener opens last, and the management interface."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as there:
                there.sendall(b"AMQP\x00\x00\x09\x01")
                if not there.recv(1):
                    return False
            self.api("GET", "vhosts")
        except (OSError, http.client.HTTPException, CommandRefusedError):
            return False
        return True

    def kill(self) -> None:
        """Send SIGKILL to the broker."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Stop the process with SIGSTOP: no responses and no heartbeats."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Kill the broker and its name server."""
        self.kill()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
            self._epmd = None

    def restart(self, *, empty: bool = False) -> None:
        """Kill and start the broker, with `empty` without its data."""
        self.kill()
        if empty:
            shutil.rmtree(self.folder / "data", ignore_errors=True)
        self.start()

    def control(self, *command: str) -> str:
        """Run `rabbitmqctl`, which takes seconds."""
        done = subprocess.run(
            [str(PROGRAMS / "rabbitmqctl"), "-q", "-n", f"rune{self.port}@localhost", *command],
            env=self._environment, check=False, capture_output=True, text=True, timeout=TIMEOUT_S,
        )  # fmt: skip
        if done.returncode:
            raise CommandRefusedError(done.stderr)
        return done.stdout

    def settle(self) -> None:
        """Flush declarations to disk. The broker buffers new queues for a moment, so that a kill right after the
        declaration would lose the queue with its confirmed messages."""
        self.control("eval", "mnesia:sync_log().")

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request to the management interface."""
        connection = http.client.HTTPConnection("127.0.0.1", self._management, timeout=30)
        with contextlib.closing(connection):
            word = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
            headers = {"Authorization": f"Basic {word}", "Content-Type": "application/json"}
            text = None if body is None else json.dumps(body)
            connection.request(method, f"/api/{path}", text, headers)
            answer = connection.getresponse()
            data = answer.read()
            if answer.status >= 400:
                raise CommandRefusedError(f"{answer.status} {data.decode(errors='replace')[:500]}")
            return json.loads(data) if data else None

    def url(self, vhost: str = "/", user: str = USER, password: str = PASSWORD) -> str:
        """Return an AMQP URL."""
        words = quote(user, safe=""), quote(password, safe="")
        return f"amqp://{words[0]}:{words[1]}@127.0.0.1:{self.port}/{quote(vhost, safe='')}"

    @contextlib.contextmanager
    def vhost(self) -> Iterator[str]:
        """Create a vhost and yield its name."""
        name = f"t{os.getpid()}-{next(_vhosts)}"
        self.api("PUT", f"vhosts/{name}")
        try:
            yield name
        finally:
            with contextlib.suppress(OSError, http.client.HTTPException, CommandRefusedError):
                self.api("DELETE", f"vhosts/{name}")

    def user(self, name: str, password: str, vhost: str, configure: str, write: str, read: str) -> None:
        """Create a user with permissions in one vhost."""
        self.api("PUT", f"users/{quote(name)}", {"password": password, "tags": ""})
        rights = {"configure": configure, "write": write, "read": read}
        self.api("PUT", f"permissions/{vhost}/{quote(name)}", rights)

    def hang_up(self) -> None:
        """Close every connection with rabbitmqctl."""
        self.control("close_all_connections", "--global", "closed by a test")

    def alarm(self, *, memory_low: bool) -> None:
        """Raise or clear a memory alarm, which blocks publishing connections."""
        self.control("set_vm_memory_high_watermark", "absolute", "1" if memory_low else "2GB")


def new_broker(config: str = "") -> Broker:
    """Start a broker that the test may kill; it is stopped with this process."""
    folder = Path(tempfile.mkdtemp(prefix="rune-rabbit-", dir=memory_folder()))
    broker = Broker(folder, free_ports(4), config)

    def end() -> None:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    broker.make()
    broker.start()
    return broker


@functools.cache
def mortal_broker() -> Broker:
    """Return a broker that the tests of this process may kill."""
    return new_broker()


class SharedBroker:
    """The broker of a run."""

    def __init__(self) -> None:
        self._broker = new_broker()

    def place(self) -> dict[str, Any]:
        return {"folder": str(self._broker.folder), "ports": self._broker.ports}

    def stop(self) -> None:
        self._broker.stop()


start_shared = SharedBroker


@functools.cache
def broker() -> Broker:
    """Return the broker that the tests of a run share. They must not stop it."""
    found = shared("rabbitmq")
    return Broker(Path(found["folder"]), found["ports"])
