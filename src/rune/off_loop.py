"""Runs reads that need much CPU in a few threads, so that the event loop goes on answering.

Threads share the interpreter: each that computes makes the event loop wait for its turn, up to 5 ms at a time. With as
many threads as requests the loop would hardly run, so a read waits until one of two threads is free.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
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


async def off_loop_in_turn(work: Callable[[], T]) -> T:
    """Return what `work` returns, computed in a thread that computes one thing at a time: for values of megabytes.
    Decoded, one takes many times its size, and while it is decoded no other thread runs."""
    run = contextvars.copy_context().run
    return await asyncio.get_running_loop().run_in_executor(_thread(os.getpid()), run, _uncollected, work)


def _uncollected(work: Callable[[], T]) -> T:
    """Call `work` without garbage collections. While millions of lists are built, each would look at all of them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        return work()
    finally:
        if enabled:
            gc.enable()


@cache
def _thread(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="rune-payload")


@cache
def _threads(process: int) -> ThreadPoolExecutor:
    """Return the threads of a process: a fork has none of those that were started before it."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="rune-read")
