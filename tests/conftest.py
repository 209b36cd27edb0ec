"""Begin of a test run, Hypothesis profiles, order and xdist groups of all tests."""

from __future__ import annotations

import json
import os
import resource
from collections import Counter
from typing import Any

import pytest
from hypothesis import settings

from tests.support.grouping import GroupScheduling, grouped, rank
from tests.support.paths import ROOT
from tests.support.services import keeper
from tests.support.whole import WHOLE

pytest_plugins = ("rune.testing.plugin",)

# In CI the same change gives the same examples; elsewhere each run draws new ones. There is no deadline, because the
# duration of an example depends on the load of the machine.
settings.register_profile("gate", derandomize=bool(os.environ.get("CI")), deadline=None, max_examples=50)
settings.register_profile("whole", deadline=None, max_examples=1_000)
settings.load_profile("whole" if WHOLE else "gate")

COLLECTION_MB = 700
"""Memory of a process that has imported all tests. What modules hold slows the collection of garbage in each test."""

SECONDS = ROOT / ".cache" / "test_seconds.json"
"""How long the tests of each file took when they last ran, for `tools/test_changed.py`."""
_seconds: Counter[str] = Counter()


@pytest.hookimpl(tryfirst=True)  # before pytest chooses the folder of temporary files
def pytest_configure(config: pytest.Config) -> None:
    if not config.option.collectonly and keeper.begin() and not config.option.basetemp:
        config.option.basetemp = keeper.temporary_folder()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    groups = grouped(item.nodeid for item in items)
    items.sort(key=lambda item: rank(groups[item.nodeid]))
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    if megabytes > COLLECTION_MB:
        raise pytest.UsageError(
            f"The collection of the tests takes {megabytes} MB of memory, more than {COLLECTION_MB} MB:"
            " a test module makes large values when it is imported instead of in its tests."
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling | None:
    return GroupScheduling(config, log) if config.getvalue("dist") == "load" else None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid.partition("::")[0]] += report.duration  # type: ignore[assignment]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _seconds and not hasattr(session.config, "workerinput"):
        known = json.loads(SECONDS.read_text()) if SECONDS.exists() else {}
        SECONDS.parent.mkdir(exist_ok=True)
        rounded = {file: round(seconds, 1) for file, seconds in _seconds.items()}
        SECONDS.write_text(json.dumps({**known, **rounded}, indent=0))
