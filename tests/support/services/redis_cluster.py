"""Redis Cluster of three masters, each with a replica: one per test run, and private ones to break."""

from __future__ import annotations

import atexit
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import redis

from tests.support.cli_process import until
from tests.support.services.keeper import memory_folder, shared, spawn_bound

MASTERS = 3
NODE_TIMEOUT_MS = 5_000
FAILOVER_TIMEOUT_S = 3.0


class ServerTls(NamedTuple):
    """The files with which the servers of a cluster identify themselves, to clients and to each other."""

    authority: Path
    certificate: Path
    key: Path

    def options(self, port: int) -> list[str]:
        """Return the options of a server that accepts only TLS connections."""
        return [
            *("--port", "0"),
            *("--tls-port", str(port)),
            *("--tls-cluster", "yes"),
            *("--tls-replication", "yes"),
            *("--tls-auth-clients", "no"),
            *("--tls-ca-cert-file", str(self.authority)),
            *("--tls-cert-file", str(self.certificate)),
            *("--tls-key-file", str(self.key)),
        ]


class ClusterNode:
    """One server of a cluster, without persistence."""

    def __init__(self, folder: Path, port: int, node_timeout_ms: int, tls: ServerTls | None = None) -> None:
        self.port = port
        self._tls = tls
        folder.mkdir()
        self._command = [
            "redis-server",
            *(("--port", str(port)) if tls is None else tls.options(port)),
            *("--bind", "127.0.0.1"),
            *("--dir", str(folder)),
            *("--save", ""),
            *("--appendonly", "no"),
            *("--maxmemory-policy", "noeviction"),
            *("--cluster-enabled", "yes"),
            *("--cluster-node-timeout", str(node_timeout_ms)),
            *("--cluster-require-full-coverage", "no"),
            *("--repl-diskless-sync-delay", "0"),
        ]
        self._frozen = False
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return spawn_bound(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None and not self._frozen

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def connect(self) -> redis.Redis:
        """Return a client of this server alone."""
        if self._tls is None:
            return redis.Redis(port=self.port, socket_timeout=30)
        return redis.Redis(port=self.port, socket_timeout=30, ssl=True, ssl_ca_certs=str(self._tls.authority))

    def ask(self, *command: object) -> object:
        with self.connect() as client:
            return client.execute_command(*command)

    def info(self, section: str, field: str) -> str:
        with self.connect() as client:
            return str(client.info(section)[field])

    @property
    def id(self) -> str:
        """The name of the server in the cluster."""
        found = self.ask("CLUSTER", "MYID")
        return found.decode() if isinstance(found, bytes) else str(found)

    def answers(self) -> bool:
        try:
            return self.ask("PING") is not None
        except redis.RedisError:
            return False

    def kill(self) -> None:
        """Send SIGKILL to the server."""
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """Stop the process with SIGSTOP: connections stay open and no command is answered."""
        self.process.send_signal(signal.SIGSTOP)
        self._frozen = True

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self._frozen = False

    def restart(self) -> None:
        """Start the killed server again; its data is lost, its place in the cluster is not."""
        self.process = self._start()


class SlotMove:
    """A slot on its way from one master to another. Its keys are on either of them until `finish`."""

    def __init__(
        self, slot: int, source: ClusterNode, target: ClusterNode, masters: list[ClusterNode]
    ) -> None:
        self._slot = slot
        self.source = source
        self.target = target
        self._masters = masters
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)

    def move_keys(self) -> int:
        """Move the keys that the source has now, and return their number."""
        names = self.source.ask("CLUSTER", "GETKEYSINSLOT", self._slot, 1_000)
        assert isinstance(names, list)
        if names:
            self.source.ask("MIGRATE", "127.0.0.1", self.target.port, "", 0, 30_000, "KEYS", *names)
        return len(names)

    def finish(self) -> None:
        while self.move_keys():
            pass
        others = [each for each in self._masters if each is not self.target]
        for each in (self.target, *others):
            each.ask("CLUSTER", "SETSLOT", self._slot, "NODE", self.target.id)


class RedisClusterServers:
    """Servers that form a Redis Cluster on ports of 127.0.0.1."""

    def __init__(self, *, node_timeout_ms: int = NODE_TIMEOUT_MS, tls: ServerTls | None = None) -> None:
        self._tls = tls
        self._folder = Path(tempfile.mkdtemp(prefix="rune-redis-cluster-", dir=memory_folder()))
        atexit.register(self.stop)
        self.nodes: list[ClusterNode] = []
        for number in range(2 * MASTERS):
            self.nodes.append(ClusterNode(self._folder / str(number), free_port(), node_timeout_ms, tls))
            self._await("the server answers", self.nodes[-1].answers)
        self._form()

    @property
    def url(self) -> str:
        return self.url_of()

    def url_of(self, login: str = "") -> str:
        """Return the URL of the cluster with a login, such as `user:password@`."""
        hosts = ",".join(each.address for each in self.nodes[:MASTERS])
        if self._tls is None:
            return f"redis://{login}{hosts}"
        return f"rediss://{login}{hosts}?ssl_ca_certs={self._tls.authority}"

    def _form(self) -> None:
        created = subprocess.run(
            [
                *("redis-cli", "--cluster", "create", *(each.address for each in self.nodes)),
                *("--cluster-replicas", "1", "--cluster-yes"),
                *(() if self._tls is None else ("--tls", "--cacert", str(self._tls.authority))),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert created.returncode == 0, created.stdout + created.stderr
        self._await("the cluster is formed", self.is_complete)

    def is_complete(self) -> bool:
        """Return whether every slot is served and every replica follows its master."""
        for each in self.nodes:
            if "cluster_state:ok" not in str(each.ask("CLUSTER", "INFO")):
                return False
            replica = each.info("replication", "role") == "slave"
            if replica and each.info("replication", "master_link_status") != "up":
                return False
        return len(self.masters()) == MASTERS

    def masters(self) -> list[ClusterNode]:
        """Return the running masters."""
        return [each for each in self.running if each.info("replication", "role") == "master"]

    @property
    def running(self) -> list[ClusterNode]:
        return [each for each in self.nodes if each.is_running]

    def master_of(self, key: str) -> ClusterNode:
        """Return the master that has a key."""
        slot = self._slot(key)
        owner = self._owner(slot)
        assert owner is not None, f"no server has the slot {slot}"
        return owner

    def _slot(self, key: str) -> int:
        found = self.running[0].ask("CLUSTER", "KEYSLOT", key)
        assert isinstance(found, int)
        return found

    def _owner(self, slot: int) -> ClusterNode | None:
        """Return the master that has a slot; None while none has taken over from one that failed."""
        with self.running[0].connect() as client:
            for first, last, master, *_ in client.execute_command("CLUSTER", "SLOTS"):
                if first <= slot <= last:
                    return next(each for each in self.nodes if each.port == master[1])
        return None

    def replica_of(self, master: ClusterNode) -> ClusterNode:
        """Return the replica of a master."""
        return next(
            each
            for each in self.running
            if each.info("replication", "role") == "slave"
            and each.info("replication", "master_port") == str(master.port)
        )

    def begin_move(self, key: str) -> SlotMove:
        """Begin to move the slot of a key to another master."""
        slot = self._slot(key)
        source = self.master_of(key)
        return SlotMove(
            slot, source, next(each for each in self.masters() if each is not source), self.masters()
        )

    def await_new_master(self, key: str, former: ClusterNode) -> ClusterNode:
        """Wait until another server has a key, and return it."""
        self._await("a replica has taken over", lambda: self._owner(self._slot(key)) not in (former, None))
        return self.master_of(key)

    def await_replica(self, node: ClusterNode) -> None:
        """Wait until a server is a replica that follows its master."""
        self._await("the server is a replica", lambda: node.info("replication", "master_link_status") == "up")

    def promote(self, replica: ClusterNode) -> None:
        """Let a replica take over from its running master. A request is dropped if the servers are not ready for it."""
        asked_at = float("-inf")

        def promoted() -> bool:
            nonlocal asked_at
            if replica.info("replication", "role") == "master":
                return True
            if time.monotonic() - asked_at > FAILOVER_TIMEOUT_S:
                asked_at = time.monotonic()
                replica.ask("CLUSTER", "FAILOVER")
            return False

        self._await("the replica has taken over", promoted)

    def heal(self) -> None:
        """Let frozen servers go on, start killed ones again, and wait until the cluster is complete."""
        for each in self.nodes:
            if each.process.poll() is not None:
                each.restart()
            elif not each.is_running:
                each.thaw()
        self._await("the cluster is complete", self.is_complete)

    def _await(self, what: str, holds: Callable[[], bool]) -> None:
        def holds_now() -> bool | None:
            try:
                return holds() or None
            except (redis.RedisError, KeyError):
                return None

        until(holds_now, what)

    def stop(self) -> None:
        for each in self.nodes:
            each.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def free_port() -> int:
    """Return a free port whose bus port, 10,000 above it, is free too."""
    while True:
        # Below the ports that the kernel assigns. At random: other test processes look for ports too.
        candidate = 20_000 + secrets.randbelow(2_700)
        if _is_free(candidate) and _is_free(candidate + 10_000):
            return candidate


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


class SharedRedisCluster(RedisClusterServers):
    """The cluster of a run."""

    def place(self) -> dict[str, Any]:
        return {"url": self.url, "first": self.nodes[0].address}


start_shared = SharedRedisCluster


class SharedCluster(NamedTuple):
    """Where the cluster of a run is."""

    url: str
    first: str
    """The address of one of its masters."""


@cache
def redis_cluster_servers() -> SharedCluster:
    """Return the cluster that the tests of a run share, each with its own prefix of keys."""
    return SharedCluster(**shared("redis_cluster"))


@contextmanager
def own_redis_cluster(
    *, node_timeout_ms: int = 1_500, tls: ServerTls | None = None
) -> Iterator[RedisClusterServers]:
    """A cluster used by one test only, which may kill its servers."""
    servers = RedisClusterServers(node_timeout_ms=node_timeout_ms, tls=tls)
    try:
        yield servers
    finally:
        servers.stop()
        atexit.unregister(servers.stop)
