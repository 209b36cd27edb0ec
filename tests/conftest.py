"""Begin of a test run, Hypothesis profiles, order and xdist groups of all tests."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import settings

from tests.support.grouping import GroupScheduling, grouped, rank
from tests.support.services import keeper

pytest_plugins = ("rune.testing.plugin",)

# In CI the same change gives the same examples; elsewhere each run draws new ones. There is no deadline, because the
# duration of an example depends on the load of the machine.
settings.register_profile("gate", derandomize=True, deadline=None)
settings.register_profile("work", deadline=None)
settings.load_profile("gate" if os.environ.get("CI") else "work")


@pytest.hookimpl(tryfirst=True)  # before pytest chooses the folder of temporary files
def pytest_configure(config: pytest.Config) -> None:
    if not config.option.collectonly and keeper.begin() and not config.option.basetemp:
        config.option.basetemp = keeper.temporary_folder()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    groups = grouped(item.nodeid for item in items)
    items.sort(key=lambda item: rank(groups[item.nodeid]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling | None:
    return GroupScheduling(config, log) if config.getvalue("dist") == "load" else None
