"""S3 server (moto) in a child process. It lists ten keys per page, so that tests need several pages."""

from __future__ import annotations

import atexit
import functools
import select
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from os import environ

from rune.adapters.blobs.s3 import AccessKeys, Bucket
from tests.support.services.keeper import spawn_bound
from tests.support.services.postgres import free_port

TIMEOUT_S = 60.0
PAGE = 10
KEYS = AccessKeys("test", "test")
NAME = "blobs"


class S3Server:
    """Accepts any keys, except within `strict`."""

    def __init__(self) -> None:
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        self._process = spawn_bound(
            [
                sys.executable,
                "-W",
                "ignore",
                "-m",
                "moto.server",
                "-H",
                "127.0.0.1",
                "-p",
                str(port),
            ],
            env={**environ, "MOTO_S3_DEFAULT_MAX_KEYS": str(PAGE)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        atexit.register(self.stop)
        until = time.monotonic() + TIMEOUT_S
        while not self._answers():
            if time.monotonic() > until or self._process.poll() is not None:
                raise RuntimeError("the S3 server does not answer")
            select.select([], [], [], 0.02)
        self._request("PUT", f"/{NAME}")

    def bucket(self, prefix: str = "", name: str = NAME) -> Bucket:
        return Bucket(name, prefix, self.url)

    def listing(self) -> str:
        """Return the listing of the whole bucket."""
        return self._request("GET", f"/{NAME}?list-type=2&max-keys=1000")

    @contextmanager
    def strict(self) -> Iterator[None]:
        """Reject all keys within the context."""
        self._request("POST", "/moto-api/reset-auth", b"0")
        try:
            yield
        finally:
            self._request("POST", "/moto-api/reset-auth", b"inf")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        try:
            return bool(self._request("GET", "/moto-api/data.json"))
        except OSError:
            return False

    def _request(self, method: str, path: str, data: bytes | None = None) -> str:
        request = urllib.request.Request(
            self.url + path, data, headers={"Content-Type": "text/plain"}, method=method
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            text: str = answer.read().decode()
            return text


@functools.cache
def s3_server() -> S3Server:
    """Return the server shared by the tests of this process."""
    return S3Server()
