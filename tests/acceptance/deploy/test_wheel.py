"""The built wheel, installed without extras outside of the repository."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.acceptance.deploy.installed import TIMEOUT_S, Environment, build_wheel
from tests.support.paths import ROOT

pytestmark = pytest.mark.long

SCRIPT = re.compile(r"""(?:src|href)="(/assets/[^"]+\.js)""")
CLUSTER = {
    "RUNE_JOURNAL": "postgresql://localhost/rune",
    "RUNE_STATE": "redis://localhost",
    "RUNE_QUEUE": "redis://localhost",
}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    made = Environment(tmp_path_factory.mktemp("installed"))
    made.install(build_wheel(tmp_path_factory.mktemp("wheel")))
    return made


def test_wheel_contains_every_example_workflow(environment: Environment) -> None:
    shipped = environment.packages / "rune" / "examples"

    here, there = (
        {str(path.relative_to(each)) for path in each.rglob("*.yaml")}
        for each in (ROOT / "examples", shipped)
    )

    assert there == here


def fetched(url: str) -> str:
    """Return a page or a script as a browser gets it; raise unless the status is 200."""
    with urlopen(Request(url, headers={"Accept": "text/html, */*"}), timeout=TIMEOUT_S) as answer:
        return str(answer.read().decode())


def test_up_of_installed_wheel_serves_examples_and_the_page(environment: Environment) -> None:
    with environment.begin("rune", "up", "--port", "0", "--json") as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.communicate(timeout=TIMEOUT_S)
            said = json.loads(line)
            with urlopen(f"{said['api']}/workflows", timeout=TIMEOUT_S) as answer:
                names = {each["workflow_id"] for each in json.load(answer)["workflows"]}
            page = fetched(said["url"])
            scripts = [fetched(said["url"] + path) for path in SCRIPT.findall(page)]
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=TIMEOUT_S)

    assert said["examples"] == len(names)
    assert {"hello", "fan-out"} <= names
    assert scripts, "the page has scripts"
    assert all(scripts)


def test_run_of_shipped_example_completes(environment: Environment) -> None:
    hello = environment.packages / "rune" / "examples" / "hello"

    done = environment.run("rune", "run", str(hello), "-i", '{"name": "Ada", "hour": 9}', "--json")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["output"] == "Good morning, Ada!"


@pytest.mark.parametrize(
    "command",
    [("list",), ("serve", "worker"), ("topology",)],
    ids=" ".join,
)
def test_cluster_command_without_extra_names_it_and_exits_2(
    environment: Environment, command: tuple[str, ...]
) -> None:
    done = environment.run("rune", *command, **CLUSTER)

    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "rune-engine[cluster]" in done.stderr


def test_traces_without_extra_name_it_and_exit_2(environment: Environment, tmp_path: Path) -> None:
    traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "RUNE_HOME": str(tmp_path)}

    done = environment.run("rune", "up", "--port", "0", **traced)

    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "rune-engine[telemetry]" in done.stderr


def test_dlq_list_without_cluster_extra_reads_embedded_file(environment: Environment) -> None:
    done = environment.run("rune", "dlq", "list")

    assert done.returncode == 0, done.stderr
