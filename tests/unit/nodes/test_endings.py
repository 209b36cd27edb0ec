"""A signal ends the process while a node runs; the same exception raised by the node fails the node."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rune.core.execution.outcome import Failure
from rune.nodes.base import NodeCall
from rune.nodes.custom import kind_of, node
from rune.nodes.registry import execute, execute_async


@contextmanager
def handling(handler: Any) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def ignore(*_: Any) -> None:
    pass


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def outcome_of(act: Callable[[], None], *, asynchronous: bool) -> Any:
    async def call_async() -> None:
        act()

    kind = kind_of(node("a.b", effectful=asynchronous)(call_async if asynchronous else act))
    assert kind is not None
    call: NodeCall[Any] = NodeCall(kind.parameters(), {"$json": None}, now=0)
    if not asynchronous:
        return execute(kind, call)
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(execute_async(kind, call))
    finally:
        loop.close()


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("handler", [signal.default_int_handler, interrupt])
def test_signal_while_a_node_runs_ends_the_process(handler: Any, asynchronous: bool) -> None:
    with handling(handler), pytest.raises(KeyboardInterrupt):
        outcome_of(press, asynchronous=asynchronous)


def test_second_signal_under_asyncio_ends_the_process() -> None:
    async def press_twice() -> None:
        press()
        outcome_of(press, asynchronous=False)
        raise AssertionError("the node was not interrupted")

    with handling(signal.default_int_handler), pytest.raises(KeyboardInterrupt):
        asyncio.run(press_twice())


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("handler", [ignore, interrupt])
def test_exception_of_the_node_fails_the_node(handler: Any, asynchronous: bool) -> None:
    def act() -> None:
        raise KeyboardInterrupt

    with handling(handler):
        outcome = outcome_of(act, asynchronous=asynchronous)
    assert isinstance(outcome, Failure)
    assert outcome.error.code == "NODE_ERROR"
