"""One test over many values, with a list of all that fail.

A parametrized test per page and module costs more for its collection and its report, in every test process, than for
its check.
"""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def for_each(
    name: str, values: Iterable[Any], ids: Callable[[Any], str] = str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test with each value; it fails with the failures of all. There must be a value."""
    given = list(values)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def every(**fixtures: Any) -> None:
            assert given, "nothing to check"
            failures = []
            for value in given:
                try:
                    test(**{name: value}, **fixtures)
                except (Exception, pytest.fail.Exception):
                    failures.append(f"{ids(value)}: {traceback.format_exc(limit=-2)}")
            if failures:
                pytest.fail(f"{len(failures)} of {len(given)} fail\n\n" + "\n".join(failures), pytrace=False)

        signature = inspect.signature(test)
        others = [each for each in signature.parameters.values() if each.name != name]
        every.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return every

    return decorate
