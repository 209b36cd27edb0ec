"""A web server for measures, in a process of its own: `python -m rune.bench.answering` prints its port."""

from __future__ import annotations

import asyncio
import sys

from aiohttp import web

from rune.bench.files import many_files

BODY = b'{"id":7,"name":"Ada","tags":["a","b"],"active":true}'


class Server:
    """Answers at once, or holds whoever asks until all are let go."""

    def __init__(self) -> None:
        self.held = 0
        self.released = asyncio.Event()

    async def answer(self, request: web.BaseRequest) -> web.Response:
        """`/`: a small object. `/hold`: later. `/held`: how many wait. `/release`: no more waiting."""
        if request.path == "/hold":
            self.held += 1
            await self.released.wait()
        elif request.path == "/held":
            return web.Response(text=str(self.held))
        elif request.path == "/release":
            self.released.set()
        return web.Response(body=BODY, content_type="application/json")


async def serve() -> None:
    """Until standard input is closed."""
    many_files()
    server = web.Server(Server().answer)
    runner = web.ServerRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=2048)
    await site.start()
    sys.stdout.write(f"{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve())
