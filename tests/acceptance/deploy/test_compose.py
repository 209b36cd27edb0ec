"""The files for people with containers speak of settings that exist, and wait for what they need."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ruamel.yaml import YAML

from rune.server.monitoring import HEALTH
from rune.settings import Settings, load_settings
from tests.acceptance.deploy.commands import NotUnderstood, understood
from tests.lint.tree import ROOT

COMPOSE: dict[str, Any] = YAML(typ="safe").load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
SERVICES: dict[str, Any] = COMPOSE["services"]
STORES = ("redis", "postgres", "rabbitmq")
OURS = ("migrate", "api", "worker", "scheduler")
KEY = "RUNE_API_KEY"
SETTINGS = {f"RUNE_{field.name.upper()}" for field in msgspec.structs.fields(Settings)}


def test_every_service_is_there() -> None:
    assert set(SERVICES) == {*STORES, *OURS}
    assert COMPOSE["volumes"].keys() == {
        volume.partition(":")[0] for service in SERVICES.values() for volume in service["volumes"]
    }


@pytest.mark.parametrize("name", OURS)
def test_settings_are_those_that_rune_reads(name: str) -> None:
    given = {each for each in SERVICES[name]["environment"] if each.startswith("RUNE_")}
    assert given - {KEY} <= SETTINGS
    assert (KEY in given) == (name == "api")
    assert {"RUNE_JOURNAL", "RUNE_STATE", "RUNE_QUEUE", "RUNE_BLOB"} <= given


def test_the_image_names_settings_that_rune_reads() -> None:
    assert set(re.findall(r"\bRUNE_[A-Z_]+", DOCKERFILE)) <= SETTINGS


@pytest.mark.parametrize("name", OURS)
def test_rune_takes_the_settings_as_they_are(name: str, tmp_path: Path) -> None:
    """With nothing else set, each `${NAME:-value}` is its value."""
    given = {
        key: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(value))
        for key, value in SERVICES[name]["environment"].items()
    }
    settings = load_settings(given, tmp_path)
    assert settings.clustered
    assert settings.queue == settings.state


@pytest.mark.parametrize("name", OURS)
def test_addresses_lead_to_services(name: str) -> None:
    text = " ".join(str(each) for each in SERVICES[name]["environment"].values())
    hosts = set(re.findall(r"(?:postgresql|redis|amqp)://(?:[^@/ ]*@)?([a-z]+):\d+", text))
    assert hosts == {"postgres", "redis"}
    assert hosts <= SERVICES.keys()


@pytest.mark.parametrize("name", [*STORES, "api", "worker", "scheduler"])
def test_whoever_stays_says_whether_it_is_well(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] == "CMD"
    assert {"interval", "timeout", "retries"} <= check.keys()


@pytest.mark.parametrize("name", ["api", "worker", "scheduler"])
def test_health_is_asked_where_it_is_told(name: str) -> None:
    words = SERVICES[name]["command"]
    port = words[words.index("--port" if name == "api" else "--health-port") + 1]
    (asked,) = re.findall(r"http://127.0.0.1:(\d+)(/\w+)", " ".join(SERVICES[name]["healthcheck"]["test"]))
    assert asked[0] == port
    assert asked[1] in HEALTH


@pytest.mark.parametrize("name", OURS)
def test_commands_are_those_that_rune_has(name: str) -> None:
    wanted = "rune migrate" if name == "migrate" else f"rune serve {name}"
    assert understood(SERVICES[name]["command"]) == wanted


@pytest.mark.parametrize("words", [["serve", "master"], ["serve", "worker", "--speed", "9"], ["migrat"]])
def test_a_command_that_rune_does_not_have_is_noticed(words: list[str]) -> None:
    with pytest.raises(NotUnderstood):
        understood(words)


def test_there_are_two_workers_and_what_they_run_may_finish(tmp_path: Path) -> None:
    assert SERVICES["worker"]["deploy"] == {"replicas": 2}
    (seconds,) = re.fullmatch(r"(\d+)s", SERVICES["worker"]["stop_grace_period"]).groups()  # type: ignore[union-attr]
    assert int(seconds) > load_settings({}, tmp_path).grace


@pytest.mark.parametrize("name", OURS)
def test_nobody_begins_before_what_it_needs(name: str) -> None:
    for other, how in SERVICES[name]["depends_on"].items():
        ready = {"condition": "service_healthy"} if "healthcheck" in SERVICES[other] else None
        assert how["condition"] == (ready or {"condition": "service_completed_successfully"})["condition"]
        assert bool(SERVICES[other].get("profiles")) == (how.get("required") is False)


def test_redis_keeps_what_it_was_told() -> None:
    said = " ".join(SERVICES["redis"]["command"])
    assert "--appendonly yes" in said
    assert "--maxmemory-policy noeviction" in said


def test_only_the_api_can_be_reached_and_only_from_this_machine() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published.keys() == {"api"}
    assert all(port.startswith("127.0.0.1:") for port in published["api"])


def test_the_image_is_built_from_the_lock_and_is_not_run_by_root() -> None:
    build = SERVICES["api"]["build"]
    assert (ROOT / build["context"] / build["dockerfile"]).read_text(encoding="utf-8") == DOCKERFILE
    assert {line.split()[1] for line in DOCKERFILE.splitlines() if line.startswith("FROM")} == {
        "python:3.12-slim"
    }
    assert "--require-hashes -r requirements.lock" in DOCKERFILE
    (user,) = re.findall(r"^USER (\d+)", DOCKERFILE, re.MULTILINE)
    assert int(user) > 0
    assert DOCKERFILE.rstrip().endswith('ENTRYPOINT ["rune"]')


def test_the_image_gets_every_file_that_it_copies() -> None:
    let_in = set(
        re.findall(r"^!(.+)$", (ROOT / "deploy" / "Dockerfile.dockerignore").read_text(), re.MULTILINE)
    )
    copied = {
        name
        for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
        for name in line.split()[:-1]
    }
    assert copied == let_in
    assert all((ROOT / name).exists() for name in copied)
