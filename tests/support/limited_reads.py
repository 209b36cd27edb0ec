"""Readers of executions in processes of their own, with limits on memory and CPU time.

`python -m tests.support.limited_reads` forks one child per reader, as `forked_rune` does: a command of `rune`, or one
request to the API over the stores of a home folder.
"""

from __future__ import annotations

import asyncio
import json
import pathlib
import resource
import sys
from typing import Any, NamedTuple

from tests.support.forked_rune import ForkedRune, run_command, serve

MAX_CPU_S = 20
"""A reader that writes out what exists uses 3 s at most here; one that writes out what is shared, minutes."""

MAX_ADDRESS_MB = 2_000
"""Of all mappings: about 700 MB of them are the interpreter, its modules and stacks of threads."""

USED = "used-limits:"


class Read(NamedTuple):
    """How a reader ended. `status` is that of the response, or the exit code of a command; `size` is the length of what
    was written."""

    status: int
    size: int
    cpu_s: float
    peak_mb: int
    text: str


class LimitedReads(ForkedRune):
    """Runs readers in forked children that have limits."""

    module = "tests.support.limited_reads"

    def __init__(self, folder: pathlib.Path, home: pathlib.Path, **environment: str) -> None:
        super().__init__(folder)
        self._environment = {"RUNE_HOME": str(home), "NO_COLOR": "1", **environment}

    def request(self, method: str, path: str, body: Any = None) -> Read:
        """Send a request to the API in a process of its own."""
        return self._read({"request": [method, path, body]})

    def command(self, *arguments: str) -> Read:
        """Run a command."""
        return self._read({"arguments": arguments})

    def _read(self, request: dict[str, Any]) -> Read:
        code, out, err = self.run({**request, "environment": self._environment})
        measured = [line for line in err.splitlines() if line.startswith(USED)]
        assert measured, (code, err[-2_000:])
        used = json.loads(measured[-1].removeprefix(USED))
        others = "\n".join(line for line in err.splitlines() if not line.startswith(USED))
        return Read(
            used.get("status", code), used.get("size", len(out)), used["cpu_s"], used["peak_mb"], out + others
        )


def limited(request: dict[str, Any]) -> None:
    """Handle a request in this process, with limits; report what it used."""
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_S, MAX_CPU_S + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_MB << 20, MAX_ADDRESS_MB << 20))
    found: dict[str, Any] = {}
    try:
        if "request" in request:
            found = asyncio.run(_answer(*request["request"]))
        else:
            run_command(request)
    finally:
        sys.stdout.flush()
        used = resource.getrusage(resource.RUSAGE_SELF)
        found |= {"cpu_s": used.ru_utime + used.ru_stime, "peak_mb": used.ru_maxrss // 1024}
        sys.stderr.write(f"\n{USED}{json.dumps(found)}\n")


async def _answer(method: str, path: str, body: Any) -> dict[str, Any]:
    import httpx

    from rune.bootstrap.http import open_app
    from rune.settings import load_settings

    async with (
        open_app(load_settings()) as (app, _),
        httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1") as http,
    ):
        answer = await http.request(method, path, json=body, timeout=600)
        sys.stdout.write(answer.text[:2_000])
        return {"status": answer.status_code, "size": len(answer.content)}


if __name__ == "__main__":
    serve(limited, "rune.bootstrap.http", "rune.server.app", "httpx")
