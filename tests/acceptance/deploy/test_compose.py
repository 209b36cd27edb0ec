"""compose.yaml and the Dockerfile use existing settings, commands and services."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ruamel.yaml import YAML

from rune.server.health import HEALTH
from rune.settings import Settings, load_settings
from tests.acceptance.deploy.command_lines import InvalidCommandLineError, command_path
from tests.lint.tree import ROOT

COMPOSE: dict[str, Any] = YAML(typ="safe").load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
SERVICES: dict[str, Any] = COMPOSE["services"]
STORES = ("redis", "postgres", "rabbitmq")
RUNE_SERVICES = ("migrate", "api", "worker", "scheduler")
KEY = "RUNE_API_KEY"
SETTINGS = {f"RUNE_{field.name.upper()}" for field in msgspec.structs.fields(Settings)}


def test_compose_defines_all_services() -> None:
    assert set(SERVICES) == {*STORES, *RUNE_SERVICES}
    assert COMPOSE["volumes"].keys() == {
        volume.partition(":")[0] for service in SERVICES.values() for volume in service["volumes"]
    }


@pytest.mark.parametrize("name", RUNE_SERVICES)
def test_service_settings_exist(name: str) -> None:
    given = {each for each in SERVICES[name]["environment"] if each.startswith("RUNE_")}
    assert given - {KEY} <= SETTINGS
    assert (KEY in given) == (name == "api")
    assert {"RUNE_JOURNAL", "RUNE_STATE", "RUNE_QUEUE", "RUNE_BLOB"} <= given


def test_api_key_has_no_default_value() -> None:
    assert SERVICES["api"]["environment"][KEY].startswith("${RUNE_API_KEY:?")


def test_dockerfile_settings_exist() -> None:
    assert set(re.findall(r"\bRUNE_[A-Z_]+", DOCKERFILE)) <= SETTINGS


@pytest.mark.parametrize("name", RUNE_SERVICES)
def test_service_settings_load(name: str, tmp_path: Path) -> None:
    """Each `${NAME:-value}` is replaced by its default value; `${NAME:?reason}` has none."""
    given = {
        key: re.sub(r"\$\{\w+:[-?]([^}]*)\}", r"\1", str(value))
        for key, value in SERVICES[name]["environment"].items()
    }
    settings = load_settings(given, tmp_path)
    assert settings.clustered
    assert settings.queue == settings.state


@pytest.mark.parametrize("name", RUNE_SERVICES)
def test_addresses_name_services(name: str) -> None:
    text = " ".join(str(each) for each in SERVICES[name]["environment"].values())
    hosts = set(re.findall(r"(?:postgresql|redis|amqp)://(?:[^@/ ]*@)?([a-z]+):\d+", text))
    assert hosts == {"postgres", "redis"}
    assert hosts <= SERVICES.keys()


@pytest.mark.parametrize("name", [*STORES, "api", "worker", "scheduler"])
def test_long_running_services_have_health_checks(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] == "CMD"
    assert {"interval", "timeout", "retries"} <= check.keys()


@pytest.mark.parametrize("name", ["api", "worker", "scheduler"])
def test_health_check_uses_served_port_and_path(name: str) -> None:
    arguments = SERVICES[name]["command"]
    port = arguments[arguments.index("--port" if name == "api" else "--health-port") + 1]
    ((check_port, check_path),) = re.findall(
        r"http://127.0.0.1:(\d+)(/\w+)", " ".join(SERVICES[name]["healthcheck"]["test"])
    )
    assert check_port == port
    assert check_path in HEALTH


@pytest.mark.parametrize("name", RUNE_SERVICES)
def test_service_commands_exist(name: str) -> None:
    expected = "rune migrate" if name == "migrate" else f"rune serve {name}"
    assert command_path(SERVICES[name]["command"]) == expected


@pytest.mark.parametrize("arguments", [["serve", "master"], ["serve", "worker", "--speed", "9"], ["migrat"]])
def test_unknown_command_is_detected(arguments: list[str]) -> None:
    with pytest.raises(InvalidCommandLineError):
        command_path(arguments)


def test_workers_have_two_replicas_and_enough_grace(tmp_path: Path) -> None:
    assert SERVICES["worker"]["deploy"] == {"replicas": 2}
    (seconds,) = re.fullmatch(r"(\d+)s", SERVICES["worker"]["stop_grace_period"]).groups()  # type: ignore[union-attr]
    assert int(seconds) > load_settings({}, tmp_path).grace


@pytest.mark.parametrize("name", RUNE_SERVICES)
def test_services_wait_for_dependencies(name: str) -> None:
    for other, how in SERVICES[name]["depends_on"].items():
        ready = {"condition": "service_healthy"} if "healthcheck" in SERVICES[other] else None
        assert how["condition"] == (ready or {"condition": "service_completed_successfully"})["condition"]
        assert bool(SERVICES[other].get("profiles")) == (how.get("required") is False)


def test_redis_is_persistent_without_eviction() -> None:
    command = " ".join(SERVICES["redis"]["command"])
    assert "--appendonly yes" in command
    assert "--maxmemory-policy noeviction" in command


def test_only_api_publishes_port_on_loopback() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published.keys() == {"api"}
    assert all(port.startswith("127.0.0.1:") for port in published["api"])


def test_image_uses_lock_file_and_unprivileged_user() -> None:
    build = SERVICES["api"]["build"]
    assert (ROOT / build["context"] / build["dockerfile"]).read_text(encoding="utf-8") == DOCKERFILE
    bases = {line.split()[1].partition("@")[0] for line in DOCKERFILE.splitlines() if line.startswith("FROM")}
    assert bases == {"python:3.12-slim"}
    assert "--require-hashes -r requirements.lock" in DOCKERFILE
    (user,) = re.findall(r"^USER (\d+)", DOCKERFILE, re.MULTILINE)
    assert int(user) > 0
    assert DOCKERFILE.rstrip().endswith('ENTRYPOINT ["rune"]')


def test_dockerfile_copies_every_source_of_wheel() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"][
        "targets"
    ]["wheel"]
    sources = {path.partition("/")[0] for path in (*wheel["packages"], *wheel["force-include"])}

    assert sources <= set(re.findall(r"^COPY (\w+) ", DOCKERFILE, re.MULTILINE))


def test_dockerignore_admits_copied_files() -> None:
    admitted = set(
        re.findall(r"^!(.+)$", (ROOT / "deploy" / "Dockerfile.dockerignore").read_text(), re.MULTILINE)
    )
    copied = {
        name
        for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
        for name in line.split()[:-1]
    }
    assert copied == admitted
    assert all((ROOT / name).exists() for name in copied)
