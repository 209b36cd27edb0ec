"""The pytest plugin: fixtures for tests of workflows. Nothing of the engine is imported before a fixture is used.

| fixture | gives |
|---|---|
| `rune_engine` | an embedded engine on a virtual clock in a new folder |
| `rune_mocks` | mocks of nodes, by id and by type |
| `rune_client` | a client of a server around that engine |
| `rune_crash` | runs with a crash at every commit point |
| `rune_recorded` | the workflow, input and mocks of a recorded execution |

`--rune-cov` lists the nodes, outlets and error edges that no test took.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from rune.client import Client
    from rune.testing.cases import Recorded
    from rune.testing.coverage import Coverage
    from rune.testing.crash import CrashTester
    from rune.testing.engine import EmbeddedEngine
    from rune.testing.mocks import Mocks

_MARKER = "rune_crash"
_COVERAGE: pytest.StashKey[Coverage] = pytest.StashKey()
_NORMAL_FIELDS = frozenset({"status", "output", "error", "failed_items", "nodes"})
_REPEATED = "rune_repeated"  # the property of a test with its repeated effects, each a point and a node
_SENT = "rune_coverage"  # the field in which a process of pytest-xdist sends its part


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rune", "workflows")
    group.addoption(
        "--rune-cov",
        action="store_true",
        help="List the nodes, outlets and error edges of workflows that no test took.",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--rune-cov"):
        from rune.testing.coverage import Coverage  # noqa: PLC0415 - see above

        config.stash[_COVERAGE] = Coverage()
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
def rune_engine(
    request: pytest.FixtureRequest, tmp_path: Path, rune_mocks: Mocks
) -> Iterator[EmbeddedEngine]:
    """An embedded engine on a virtual clock in a new folder, with the custom nodes of RUNE_NODES and `rune.toml`."""
    from rune.settings import load_settings  # noqa: PLC0415 - see above
    from rune.testing.engine import EmbeddedEngine  # noqa: PLC0415 - see above

    coverage = request.config.stash.get(_COVERAGE, None)
    nodes = load_settings().nodes
    with EmbeddedEngine(tmp_path / "rune", rune_mocks, nodes=nodes, coverage=coverage) as engine:
        yield engine
        engine.check_mocks()


@pytest.fixture
def rune_client(rune_engine: EmbeddedEngine) -> Iterator[Client]:
    """A client of a server around `rune_engine`, without a socket."""
    from rune.testing.server import client_of  # noqa: PLC0415 - see above

    with client_of(rune_engine) as client:
        yield client


@pytest.fixture
def rune_crash(request: pytest.FixtureRequest, tmp_path: Path, rune_mocks: Mocks) -> Iterator[CrashTester]:
    """Runs workflows with a crash at every commit point; see the marker `rune_crash`."""
    from rune.settings import load_settings  # noqa: PLC0415 - see above
    from rune.testing.crash import CrashTester  # noqa: PLC0415 - see above

    marker = request.node.get_closest_marker(_MARKER)
    options: dict[str, Any] = dict(marker.kwargs) if marker is not None else {}
    coverage = request.config.stash.get(_COVERAGE, None)
    nodes = load_settings().nodes
    tester = CrashTester(tmp_path / "crash", rune_mocks, nodes=nodes, coverage=coverage, **options)
    yield tester
    repeated = [[str(point), node] for point, nodes in tester.repeated.items() for node in sorted(set(nodes))]
    if repeated:
        # Part of the report of the test, so pytest-xdist carries it to the process that prints the summary.
        request.node.user_properties.append((_REPEATED, repeated))


@pytest.fixture
def rune_recorded(
    request: pytest.FixtureRequest, rune_engine: EmbeddedEngine
) -> Callable[[Path | str], Recorded]:
    """Loads a file that `rune record` wrote, relative to the test, and sets its mocks."""
    from rune.testing.cases import load_recorded  # noqa: PLC0415 - see above

    return lambda path: load_recorded(request.path.parent / path, rune_engine)


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


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Describe how two normal forms of executions differ, by node and item."""
    if op != "==" or not (isinstance(left, dict) and isinstance(right, dict)):
        return None
    if left.keys() != right.keys() or left.keys() != _NORMAL_FIELDS:
        return None
    from rune.testing.expectations import differences  # noqa: PLC0415 - see above

    return ["executions differ, found instead of expected:", *differences(right, left)]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send what a process of pytest-xdist has collected to the process that reports it."""
    sent = getattr(session.config, "workeroutput", None)
    coverage = session.config.stash.get(_COVERAGE, None)
    if sent is not None and coverage is not None:
        sent[_SENT] = coverage.taken


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take over what a process of pytest-xdist has collected."""
    coverage = node.config.stash.get(_COVERAGE, None)
    sent = getattr(node, "workeroutput", {}).get(_SENT)
    if coverage is not None and sent is not None:
        coverage.merge(sent)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    _write_repeated(terminalreporter)
    coverage = config.stash.get(_COVERAGE, None)
    if coverage is not None:
        terminalreporter.section("coverage of workflows")
        for line in coverage.lines() or ["no test ran a workflow with a fixture of Rune"]:
            terminalreporter.write_line(line)


def _write_repeated(reporter: pytest.TerminalReporter) -> None:
    """List the effects that crash tests called again, by test and node."""
    lines: list[str] = []
    for report in (each for found in reporter.stats.values() for each in found):
        if getattr(report, "when", "") != "teardown":
            continue
        points: dict[str, list[str]] = {}
        for point, node in dict(report.user_properties).get(_REPEATED, ()):
            points.setdefault(node, []).append(point)
        lines += [
            f"{report.nodeid}: `{node}` was called again after a crash at {', '.join(found)}"
            for node, found in points.items()
        ]
    if lines:
        reporter.section("repeated effects")
        for line in lines:
            reporter.write_line(line)
