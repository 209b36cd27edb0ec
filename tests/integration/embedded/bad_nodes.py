"""Nodes that return invalid values or raise unusual exceptions."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from typing import Any

from rune.errors import NodeFailure
from rune.nodes.custom import node


class CustomBaseException(BaseException):
    """Not an Exception, so that `except Exception` does not catch it."""


class NoTextError(Exception):
    """An exception that cannot be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class LongTextError(Exception):
    """An exception whose text is 100 MB long."""

    def __str__(self) -> str:
        return "long " * 20_000_000


class EndlessTextError(Exception):
    """An exception whose text is never finished."""

    def __str__(self) -> str:
        while not CLOSED_FOR_EVER:
            pass
        return ""


class BlockedTextError(Exception):
    """An exception whose text comes when GATE is opened."""

    def __str__(self) -> str:
        GATE.wait()
        return "late"

    __repr__ = __str__


GATE = threading.Event()
CLOSED_FOR_EVER = False


class NoFields(NodeFailure):
    """A failure whose fields raise or were never set."""

    def __init__(self) -> None:
        """Set no message."""

    @property
    def details(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no details")


class OddCauseError(Exception):
    """An exception whose arguments and cause are not those of an exception."""

    @property
    def args(self) -> Any:  # type: ignore[override]
        raise KeyboardInterrupt

    @property
    def __cause__(self) -> Any:  # type: ignore[override]
        raise SystemExit(3)


def _raise(error: BaseException) -> Any:
    raise error


def _fail_without_text() -> Any:
    nothing: Any = NoTextError()
    raise NodeFailure(nothing, code=nothing, details={"a": nothing})


def _fail_blocked() -> Any:
    blocked: Any = BlockedTextError()
    raise NodeFailure(blocked, details={"a": blocked})


SLOW_TEXTS: dict[str, Any] = {
    "endless": lambda: _raise(EndlessTextError()),
    "blocked": lambda: _raise(BlockedTextError()),
    "blocked cause": lambda: _raise_from(ValueError("first"), BlockedTextError()),
    "blocked failure": _fail_blocked,
}


def _raise_from(error: BaseException, cause: BaseException) -> Any:
    raise error from cause


def _cycle() -> Any:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    raise first


def _chain() -> Any:
    error = ValueError("0")
    for number in range(5_000):
        following = ValueError(str(number))
        following.__cause__ = error
        error = following
    raise error


def _endless(depth: int = 0) -> int:
    return _endless(depth + 1) + 1


def _nested() -> Any:
    value: Any = []
    for _ in range(5_000):
        value = [value]
    return value


WAYS: dict[str, Any] = {
    "nan": lambda: float("nan"),
    "infinity": lambda: {"x": [float("inf")]},
    "set": lambda: {1, 2} | {object()},
    "object": object,
    "function": lambda: print,
    "huge": lambda: "x" * 70_000_000,
    "deep": _nested,
    "keys": lambda: {(1, 2): 3},
    "surrogate": lambda: "\ud800",
    "exit": lambda: sys.exit(7),
    "odd": lambda: (_ for _ in ()).throw(CustomBaseException("odd")),
    "recursion": _endless,
    "unicode": "\ud800".encode,
    "error with a surrogate": lambda: (_ for _ in ()).throw(ValueError("\ud800 is half")),
    "memory": lambda: (_ for _ in ()).throw(MemoryError()),
    "stop": lambda: next(iter(())),
    "assertion": lambda: (_ for _ in ()).throw(AssertionError()),
    "cancelled": lambda: (_ for _ in ()).throw(asyncio.CancelledError()),
    "interrupt": lambda: _raise(KeyboardInterrupt()),
    "generator exit": lambda: _raise(GeneratorExit("done")),
    "no text": lambda: _raise(NoTextError()),
    "long text": lambda: _raise(LongTextError()),
    "no fields": lambda: _raise(NoFields()),
    "no text of a failure": _fail_without_text,
    "odd cause": lambda: _raise(OddCauseError()),
    "cyclic causes": _cycle,
    "many causes": _chain,
    "timeout": lambda: (_ for _ in ()).throw(TimeoutError()),
}


@node("bad.async")
async def bad_async(way: str) -> Any:
    """Run in the event loop."""
    return (WAYS | SLOW_TEXTS)[way]()


@node("bad.thread")
def bad_thread(way: str) -> Any:
    """Run in a thread."""
    return (WAYS | SLOW_TEXTS)[way]()


@node("bad.pure", effectful=False)
def bad_pure(way: str) -> Any:
    """Run inline."""
    return (WAYS | SLOW_TEXTS)[way]()


@node("bad.task")
async def bad_task(way: str) -> None:
    """End the task that runs the node."""
    task = asyncio.current_task()
    assert task is not None
    if way == "cancel":
        task.cancel()
        await asyncio.sleep(0)
        return
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_exception, GeneratorExit())
    await future


@node("bad.coded")
async def bad_coded() -> None:
    """Fail with a code and a message that hold control characters."""
    raise NodeFailure("odd\n\x00\x1b[2J\x9b", code="odd\n\x00\x1b[2J\x9b")


@node("bad.stubborn")
async def bad_stubborn(way: str) -> None:
    """Go on after each cancellation."""
    while True:
        try:
            await STUBBORN[way]()
        except asyncio.CancelledError:
            continue


@node("bad.closing")
async def bad_closing(way: str) -> str:
    """Need a moment to release what it holds, as somebody who closes a connection does."""
    try:
        await asyncio.Event().wait()
    finally:
        for _ in range(3):
            await asyncio.sleep(0)
        await asyncio.to_thread(threading.Event().wait, 0.01)
        CLOSED.append("closed")
    return "never"


@node("bad.late")
async def bad_late(way: str) -> str:
    """Return too late: after ignoring a cancellation, or after blocking the event loop."""
    if way == "blocks":
        threading.Event().wait(0.2)
        return "late"
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    return "late"


@node("bad.deaf")
async def bad_deaf() -> None:
    """Go on even when it is closed."""
    while True:
        with contextlib.suppress(asyncio.CancelledError, GeneratorExit):
            await asyncio.Event().wait()


async def _interrupted() -> None:
    await asyncio.sleep(0)
    raise KeyboardInterrupt


async def _exiting() -> None:
    await asyncio.sleep(0)
    sys.exit(7)


async def _called_back() -> None:
    asyncio.get_running_loop().call_soon(_raise, KeyboardInterrupt())
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def _stopping() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)


LOOP_ENDS: dict[str, Any] = {
    "interrupted": lambda: asyncio.create_task(_interrupted()),
    "exiting": lambda: asyncio.create_task(_exiting()),
    "called back": _called_back,
    "stopping": _stopping,
}


@node("bad.loop")
async def bad_loop(way: str) -> str:
    """Do what ends an event loop."""
    await LOOP_ENDS[way]()
    return way


async def _in_task() -> None:
    await asyncio.create_task(asyncio.Event().wait())


async def _in_scope() -> None:
    async with asyncio.timeout(3600):
        await asyncio.Event().wait()


CLOSED: list[str] = []
STUBBORN: dict[str, Any] = {
    "turns": lambda: asyncio.sleep(0),
    "event": lambda: asyncio.Event().wait(),
    "task": _in_task,
    "scope": _in_scope,
    "all": lambda: asyncio.gather(asyncio.Event().wait(), asyncio.Event().wait()),
}
