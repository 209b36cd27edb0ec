"""Store servers with TLS, and the certificates of a temporary authority."""

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


class Certificates:
    """The files of an authority, a server certificate and a client certificate, and of an unrelated authority."""

    def __init__(self, folder: Path) -> None:
        authority, other = trustme.CA(), trustme.CA()
        self.authority = self._write(folder / "ca.pem", authority.cert_pem)
        self.other_authority = self._write(folder / "other.pem", other.cert_pem)
        self.certificate, self.key = self._write_issued(folder, "server", authority.issue_cert(HOST))
        self.client, self.client_key = self._write_issued(
            folder, "client", authority.issue_cert("rune@localhost")
        )

    @staticmethod
    def _write(path: Path, blob: trustme.Blob) -> Path:
        blob.write_to_path(str(path))
        path.chmod(0o644)
        return path

    def _write_issued(self, folder: Path, name: str, issued: trustme.LeafCert) -> tuple[Path, Path]:
        key = self._write(folder / f"{name}.key", issued.private_key_pem)
        key.chmod(0o600)
        return self._write(folder / f"{name}.pem", issued.cert_chain_pems[0]), key

    def owned_by_postgres(self) -> Path:
        """A copy of the server key that only the user of PostgreSQL can read."""
        key = self.key.with_name("postgres.key")
        shutil.copyfile(self.key, key)
        key.chmod(0o600)
        if os.getuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(key, owner.pw_uid, owner.pw_gid)
        return key


@contextmanager
def certificates() -> Iterator[Certificates]:
    """Create certificates in a folder that the users of the servers can read."""
    folder = Path(tempfile.mkdtemp(prefix="rune-tls-"))
    folder.chmod(0o755)
    try:
        yield Certificates(folder)
    finally:
        shutil.rmtree(folder)


@contextmanager
def redis(certificates: Certificates, *, clients: str = "no") -> Iterator[str]:
    """Start Redis and yield its URL without options; `clients`: whether client certificates are required."""
    port = free_port()
    server = RedisServer(
        *("--tls-port", str(port)),
        *("--tls-cert-file", str(certificates.certificate)),
        *("--tls-key-file", str(certificates.key)),
        *("--tls-ca-cert-file", str(certificates.authority)),
        *("--tls-auth-clients", clients),
    )
    try:
        yield f"rediss://{HOST}:{port}"
    finally:
        server.stop()


@contextmanager
def postgres(certificates: Certificates) -> Iterator[Server]:
    """Start PostgreSQL."""
    server = new_server(
        ssl="on",
        ssl_cert_file=str(certificates.certificate),
        ssl_key_file=str(certificates.owned_by_postgres()),
    )
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def rabbitmq(certificates: Certificates) -> Iterator[tuple[Broker, int]]:
    """Start RabbitMQ; yield the broker and its TLS port."""
    port = free_ports(5)[-1]
    broker = new_broker(
        f"listeners.ssl.1 = 127.0.0.1:{port}\n"
        f"ssl_options.cacertfile = {certificates.authority}\n"
        f"ssl_options.certfile = {certificates.certificate}\n"
        f"ssl_options.keyfile = {certificates.key}\n"
        "ssl_options.verify = verify_none\n"
    )
    try:
        yield broker, port
    finally:
        broker.stop()
