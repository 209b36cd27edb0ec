"""An S3 of our own: a server in a process of its own, gone with ours. It lists ten at a time, so that pages are met."""

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
from tests.support.services.postgres import free_port

PATIENCE = 60.0
PAGE = 10
KEYS = AccessKeys("test", "test")
NAME = "blobs"


class S3Server:
    """Takes any keys, unless told to look at them."""

    def __init__(self) -> None:
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        self._process = subprocess.Popen(
            [
                "setpriv",
                "--pdeathsig=KILL",
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
        until = time.monotonic() + PATIENCE
        while not self._answers():
            if time.monotonic() > until or self._process.poll() is not None:
                raise RuntimeError("the S3 of the tests does not answer")
            select.select([], [], [], 0.02)
        self._ask("PUT", f"/{NAME}")

    def bucket(self, prefix: str = "", name: str = NAME) -> Bucket:
        return Bucket(name, prefix, self.url)

    def listed(self) -> str:
        """Everything in the bucket, as the server lists it."""
        return self._ask("GET", f"/{NAME}?list-type=2&max-keys=1000")

    @contextmanager
    def strict(self) -> Iterator[None]:
        """Meanwhile it wants keys that it has given out, and it has given out none."""
        self._ask("POST", "/moto-api/reset-auth", b"0")
        try:
            yield
        finally:
            self._ask("POST", "/moto-api/reset-auth", b"inf")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        try:
            return bool(self._ask("GET", "/moto-api/data.json"))
        except OSError:
            return False

    def _ask(self, method: str, path: str, data: bytes | None = None) -> str:
        asked = urllib.request.Request(
            self.url + path, data, headers={"Content-Type": "text/plain"}, method=method
        )
        with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
            text: str = answer.read().decode()
            return text


@functools.cache
def s3_server() -> S3Server:
    """The server that the tests of this process share."""
    return S3Server()
