"""Stores that speak TLS, with certificates of an authority that was made for the occasion."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trustme

from tests.support.services.postgres import Server, free_port, new_server
from tests.support.services.rabbitmq import Broker, free_ports, new_broker
from tests.support.services.redis_server import RedisServer

HOST = "localhost"


class Papers:
    """An authority, a certificate of a server and one of a client, as files; and an authority that nobody asked."""

    def __init__(self, folder: Path) -> None:
        authority, other = trustme.CA(), trustme.CA()
        self.authority = self._kept(folder / "ca.pem", authority.cert_pem)
        self.stranger = self._kept(folder / "other.pem", other.cert_pem)
        self.certificate, self.key = self._issued(folder, "server", authority.issue_cert(HOST))
        self.client, self.client_key = self._issued(folder, "client", authority.issue_cert("rune@localhost"))

    @staticmethod
    def _kept(path: Path, blob: trustme.Blob) -> Path:
        blob.write_to_path(str(path))
        path.chmod(0o644)
        return path

    def _issued(self, folder: Path, name: str, issued: trustme.LeafCert) -> tuple[Path, Path]:
        key = self._kept(folder / f"{name}.key", issued.private_key_pem)
        key.chmod(0o600)
        return self._kept(folder / f"{name}.pem", issued.cert_chain_pems[0]), key

    def owned_by_postgres(self) -> Path:
        """The server's key as PostgreSQL wants it: nobody else may read it."""
        key = self.key.with_name("postgres.key")
        shutil.copyfile(self.key, key)
        key.chmod(0o600)
        if os.getuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(key, owner.pw_uid, owner.pw_gid)
        return key


@contextmanager
def papers() -> Iterator[Papers]:
    """In a folder that the users of the servers get to."""
    folder = Path(tempfile.mkdtemp(prefix="rune-tls-"))
    folder.chmod(0o755)
    try:
        yield Papers(folder)
    finally:
        shutil.rmtree(folder)


@contextmanager
def redis(papers: Papers, *, clients: str = "no") -> Iterator[str]:
    """A Redis; `clients`: whether they must show a certificate. Yields its address without options."""
    port = free_port()
    server = RedisServer(
        *("--tls-port", str(port)),
        *("--tls-cert-file", str(papers.certificate)),
        *("--tls-key-file", str(papers.key)),
        *("--tls-ca-cert-file", str(papers.authority)),
        *("--tls-auth-clients", clients),
    )
    try:
        yield f"rediss://{HOST}:{port}"
    finally:
        server.stop()


@contextmanager
def postgres(papers: Papers) -> Iterator[Server]:
    """A PostgreSQL."""
    server = new_server(
        ssl="on",
        ssl_cert_file=str(papers.certificate),
        ssl_key_file=str(papers.owned_by_postgres()),
    )
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def rabbitmq(papers: Papers) -> Iterator[tuple[Broker, int]]:
    """A broker, and its port for TLS."""
    port = free_ports(5)[-1]
    broker = new_broker(
        f"listeners.ssl.1 = 127.0.0.1:{port}\n"
        f"ssl_options.cacertfile = {papers.authority}\n"
        f"ssl_options.certfile = {papers.certificate}\n"
        f"ssl_options.keyfile = {papers.key}\n"
        "ssl_options.verify = verify_none\n"
    )
    try:
        yield broker, port
    finally:
        broker.stop()
