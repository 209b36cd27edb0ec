"""The pytest plugin: fixtures for tests of workflows. Nothing of the engine is imported before a fixture is used.

| fixture | gives |
|---|---|
| `rune_engine` | an embedded engine on a virtual clock in a new folder |
| `rune_mocks` | mocks of nodes, by id and by type |
| `rune_client` | a client of a server around that engine |
| `rune_crash` | runs with a crash at every commit point |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from rune.client import Client
    from rune.testing.crash import CrashTester
    from rune.testing.engine import EmbeddedEngine
    from rune.testing.mocks import Mocks

_MARKER = "rune_crash"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{_MARKER}(at=None, most=None): run the test again with a crash at each commit point that it passes",
    )


@pytest.fixture
def rune_mocks() -> Iterator[Mocks]:
    """Mocks of nodes. A node with effects that has no mock fails the test."""
    from rune.testing.mocks import Mocks  # noqa: PLC0415 - see above

    mocks = Mocks()
    yield mocks
    mocks.check()


@pytest.fixture
def rune_engine(tmp_path: Path, rune_mocks: Mocks) -> Iterator[EmbeddedEngine]:
    """An embedded engine on a virtual clock in a new folder."""
    from rune.testing.engine import EmbeddedEngine  # noqa: PLC0415 - see above

    with EmbeddedEngine(tmp_path / "rune", rune_mocks) as engine:
        yield engine


@pytest.fixture
def rune_client(rune_engine: EmbeddedEngine) -> Iterator[Client]:
    """A client of a server around `rune_engine`, without a socket."""
    from rune.testing.server import client_of  # noqa: PLC0415 - see above

    with client_of(rune_engine) as client:
        yield client


@pytest.fixture
def rune_crash(request: pytest.FixtureRequest, tmp_path: Path, rune_mocks: Mocks) -> CrashTester:
    """Runs workflows with a crash at every commit point; see the marker `rune_crash`."""
    from rune.testing.crash import CrashTester  # noqa: PLC0415 - see above

    marker = request.node.get_closest_marker(_MARKER)
    options: dict[str, Any] = dict(marker.kwargs) if marker is not None else {}
    return CrashTester(tmp_path / "crash", rune_mocks, **options)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a marked test without a crash, then once per point that it passed."""
    if pyfuncitem.get_closest_marker(_MARKER) is None or "rune_crash" not in pyfuncitem.funcargs:
        return None
    tester = cast("CrashTester", pyfuncitem.funcargs["rune_crash"])
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    pyfuncitem.obj(**arguments)
    for point in tester.points():
        tester.begin(point)
        try:
            pyfuncitem.obj(**arguments)
        except Exception as error:
            error.add_note(f"with a crash at {point}")
            raise
    return True
