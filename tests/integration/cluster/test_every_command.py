"""Each command works on a cluster by the settings of its stores alone, and says what it needs while Redis is away."""

from __future__ import annotations

import asyncio
import itertools
import pathlib
import shlex
import string
import time
from collections.abc import Iterator

import pytest

from rune.core.execution.fact import ExecutionEnded
from rune.core.execution.outcome import Error
from rune.testing.harness import compiled
from tests.support.cli_process import Rune
from tests.support.cluster_cli import GATED, command_line, until_ended, until_waiting
from tests.support.clusters import Cluster, open_cluster
from tests.support.command_rows import ELSEWHERE, FILES, NEEDS_REDIS, ROWS, Row, command_names, name_of
from tests.support.in_process_cli import InProcessCli

pytestmark = pytest.mark.long

AWAY = "unix:///nonexistent/redis.sock"
LIVE = {"RUNE_START_TIMEOUT": "0"}
NO_REDIS = {"RUNE_STATE": AWAY, "RUNE_QUEUE": AWAY, **LIVE}


class Site:
    """A cluster, and what the placeholders of rows name in it."""

    def __init__(self, cluster: Cluster, folder: pathlib.Path) -> None:
        self.cluster = cluster
        self.rune = command_line(cluster.fleet)
        self._folder = folder
        self._numbers = itertools.count()
        self._files = {}
        for name, text in FILES.items():
            path = folder / name
            path.write_text(text)
            self._files[path.stem] = str(path)
        for version in ("sent", "sent again"):
            (folder / "version.yaml").write_text(FILES["flow.yaml"].replace("sent", version))
            self.rune.json("deploy", str(folder / "version.yaml"))
        for file in ("waits", "fails"):
            self.rune.json("deploy", self._files[file])
        ended, other, failed = (self._end(each) for each in ("every", "every", "every-fails"))
        self._known = {**self._files, "ended": ended, "other": other, "failed": failed}

    def _end(self, workflow: str) -> str:
        return str(until_ended(self.rune, self._start(workflow))["execution_id"])

    def _start(self, workflow: str) -> str:
        return str(self.rune.json("start", workflow)["execution_id"])

    def arguments(self, row: Row) -> list[str]:
        """Return the arguments of a call."""
        wanted = {name for _, name, _, _ in string.Formatter().parse(row.words) if name}
        return shlex.split(row.words.format_map({name: self._named(name) for name in wanted}))

    def _named(self, name: str) -> str:
        """Return what a placeholder names. What a command may use up is made for each call."""
        if name in self._known:
            return self._known[name]
        new = f"new{next(self._numbers)}"
        match name:
            case "new":
                return new
            case "made":
                return str(self._folder / new)
            case "waiting":
                execution = self._start("every-waits")
                until_waiting(self.rune, execution)
                return execution
            case "dead":
                return asyncio.run(self._dead_letter())
            case "job":
                return str(self.rune.json("bulk", "start", "cancel", self._named("waiting"))["id"])
            case "removable":
                (self._folder / "removable.yaml").write_text(FILES["waits.yaml"].replace("every-waits", new))
                self.rune.json("deploy", str(self._folder / "removable.yaml"))
                return new
            case "credential":
                added = self.rune(
                    "credentials", "add", new, "--type", "bearer", "--host", "*", "--json", stdin="a-token"
                )
                assert added.exit_code == 0, added.output
                return new
            case "key":
                return str(self.rune.json("keys", "create", new, "--role", "runner")["id"])
            case "worker":
                listed = self.rune.json("workers")["workers"]
                return next(str(each["name"]) for each in listed if "worker" in each["roles"])
        raise AssertionError(f"`{{{name}}}` is not known")

    async def _dead_letter(self) -> str:
        """Return an execution that ended as a dead letter."""
        async with self.cluster.connect() as (engine, _):
            plan = compiled(GATED, engine.registry)
            accepted, _ = await engine.start(plan, b"{}")
            failure = Error("DEAD_LETTERED", "the engine could not handle it", engine=True)
            end = ExecutionEnded(time.time_ns() // 1_000_000, "failed", failure)
            await engine.backend.journal.record(accepted.id, [end])
            return accepted.id

    def environment(self, **more: str) -> dict[str, str]:
        given = {
            name: value for name, value in self.cluster.fleet.environment.items() if name.startswith("RUNE_")
        }
        return {**given, **more}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_cluster(tmp_path_factory.mktemp("cluster"), "redis", in_place=True, workers=1) as cluster:
        yield Site(cluster, tmp_path_factory.mktemp("files"))


def _call(site: Site, row: Row, environment: dict[str, str]) -> tuple[int, str]:
    """Call a command, stop it if it runs until then, and return its exit code and output."""
    given = site.environment(**environment)
    home = pathlib.Path(given.pop("RUNE_HOME"))
    arguments = site.arguments(row)
    if not row.stays:
        done = InProcessCli(home, **given)(*arguments, stdin=row.stdin)
        return done.exit_code, done.output
    with Rune(home, **given).begin(*arguments) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        printed = ""
        for line in process.stdout:
            printed += line
            if row.stays in line:
                process.terminate()
        return process.wait(), printed + process.stderr.read()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.words)
def test_command_works_by_settings_alone(row: Row, site: Site) -> None:
    code, output = _call(site, row, LIVE)

    assert code == row.code, output
    assert row.stays in output


@pytest.mark.parametrize("row", [row for row in ROWS if row.away is not None], ids=lambda row: row.words)
def test_command_works_or_names_redis_while_redis_is_away(row: Row, site: Site) -> None:
    code, output = _call(site, row, NO_REDIS)

    assert code == row.away, output
    if row.away == NEEDS_REDIS:
        assert "Redis" in output


def test_every_command_has_a_row() -> None:
    assert {name_of(row) for row in ROWS} | set(ELSEWHERE) == set(command_names())
