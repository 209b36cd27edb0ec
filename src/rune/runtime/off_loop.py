"""Runs reads that need much CPU in a few threads, so that the event loop goes on answering.

Threads share the interpreter: each that computes makes the event loop wait for its turn, up to 5 ms at a time. With as
many threads as requests the loop would hardly run, so a read waits until one of two threads is free.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

T = TypeVar("T")

THREADS = 2


async def off_loop(work: Callable[[], T]) -> T:
    """Return what `work` returns, computed in one of the threads."""
    run = contextvars.copy_context().run
    return await asyncio.get_running_loop().run_in_executor(_threads(os.getpid()), run, work)


@cache
def _threads(process: int) -> ThreadPoolExecutor:
    """Return the threads of a process: a fork has none of those that were started before it."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="rune-read")
