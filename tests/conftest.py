"""Hypothesis profiles and xdist groups of all tests."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from tests.support.grouping import grouped, rank

# In CI the same change gives the same examples; elsewhere each run draws new ones. There is no deadline, because the
# duration of an example depends on the load of the machine.
settings.register_profile("gate", derandomize=True, deadline=None)
settings.register_profile("work", deadline=None)
settings.load_profile("gate" if os.environ.get("CI") else "work")


# First, because pytest-xdist reads the marks in the same hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    groups = grouped(item.nodeid for item in items)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(groups[item.nodeid]))
    items.sort(key=lambda item: rank(groups[item.nodeid]))
