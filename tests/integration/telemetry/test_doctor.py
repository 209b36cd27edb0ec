"""`rune doctor`: permissions, clocks, disk space and advice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from rune.adapters.rabbitmq.queue import RabbitQueue
from rune.adapters.rabbitmq.topology import Topology, definitions, user_name
from rune.bootstrap.doctor import clock, free_space
from rune.bootstrap.interpreter import describe
from rune.ports.inspection import ClusterSurvey
from tests.support.backends import stores
from tests.support.in_process_cli import InProcessCli
from tests.support.services.postgres import database_of, server
from tests.support.services.rabbitmq import broker
from tests.support.services.redis_server import RedisServer

pytestmark = pytest.mark.long

READER, WRITER = "tele_reader", "tele_writer"


def checks(folder: Path, code: int = 0, **environment: str) -> dict[str, dict[str, Any]]:
    """Run the doctor; return its findings by check."""
    made = stores(folder)
    given = {"RUNE_JOURNAL": made.journal, "RUNE_STATE": made.state, "RUNE_QUEUE": made.queue, **environment}
    report = InProcessCli(folder, RUNE_PREFIX="doctor", **given).json("doctor", code=code)
    return {each["check"]: each for each in report["checks"]}


def test_healthy_cluster_passes_all_checks(tmp_path: Path) -> None:
    found = checks(tmp_path)
    rights = found["postgresql rights"]
    assert rights["verdict"] == found["redis rights"]["verdict"] == "ok"
    assert rights["found"] == "rune can run as worker, scheduler, api; may change the schema"
    assert (found["postgresql clock"]["verdict"], found["redis clock"]["verdict"]) == ("ok", "ok")
    assert str(tmp_path) in found["disk"]["found"]
    assert found["traces"]["found"] == "off"
    assert found["metrics"]["verdict"] == "ok"
    assert (found["python"]["verdict"], found["python"]["found"]) == ("ok", describe())


def test_read_only_postgresql_user_fails(tmp_path: Path) -> None:
    journal = stores(tmp_path).journal
    make = f"CREATE ROLE {READER} LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {READER}"
    server().sql(make, database_of(tmp_path))
    found = checks(tmp_path, code=1, RUNE_JOURNAL=journal.replace("//rune@", f"//{READER}@"))
    assert found["postgresql rights"]["verdict"] == "bad"
    assert "INSERT on execution" in found["postgresql rights"]["found"]
    assert "rune migrate --roles" in found["postgresql rights"]["advice"]
    assert found["schema"]["verdict"] == "ok"


def test_postgresql_user_without_ddl_passes(tmp_path: Path) -> None:
    journal = stores(tmp_path).journal
    make = f"CREATE ROLE {WRITER} LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO {WRITER}"
    server().sql(make, database_of(tmp_path))
    found = checks(tmp_path, RUNE_JOURNAL=journal.replace("//rune@", f"//{WRITER}@"))
    assert found["postgresql rights"]["verdict"] == "ok"
    assert "may not change the schema" in found["postgresql rights"]["found"]


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    made = RedisServer()
    try:
        yield made
    finally:
        made.stop()


def test_redis_user_without_commands_fails(tmp_path: Path, own_redis: RedisServer) -> None:
    with redis.Redis(unix_socket_path=own_redis.socket) as admin:
        admin.execute_command(
            "ACL", "SETUSER", "short", "on", ">word", "~doctor:*", "&doctor:*", "+@all", "-xadd", "-zrem"
        )
        before = admin.dbsize()
        url = f"unix://short:word@{own_redis.socket}"
        found = checks(tmp_path, code=1, RUNE_STATE=url, RUNE_QUEUE=url)
        leftover = admin.keys("doctor:doctor*")
    assert found["redis rights"]["verdict"] == "bad"
    assert found["redis rights"]["found"] == "not allowed: zrem, xadd"
    assert (before, leftover) == (0, [])


def test_rabbitmq_user_without_permissions_fails(tmp_path: Path) -> None:
    rabbitmq = broker()
    with rabbitmq.vhost() as vhost:
        found = checks(tmp_path, RUNE_QUEUE=rabbitmq.url(vhost))
        assert found["rabbitmq"]["verdict"] == "ok"
        assert "do not exist yet" in found["rabbitmq rights"]["found"]
        asyncio.run(RabbitQueue(rabbitmq.url(vhost)).check())
        assert checks(tmp_path, RUNE_QUEUE=rabbitmq.url(vhost))["rabbitmq rights"]["found"].startswith(
            "all permissions"
        )
        rabbitmq.user("limited", "word", vhost, ".*", "workflow.execution", "workflow.node.status")
        url = rabbitmq.url(vhost, "limited", "word")
        found = checks(tmp_path, code=1, RUNE_QUEUE=url)
        assert "read workflow.execution" in found["rabbitmq rights"]["found"]
        assert "word" not in str(found)


def test_queues_with_other_arguments_fail(tmp_path: Path) -> None:
    rabbitmq = broker()
    with rabbitmq.vhost() as vhost:
        assert "rabbitmq queues" not in checks(tmp_path, RUNE_QUEUE=rabbitmq.url(vhost))
        assert rabbitmq.api("GET", f"queues/{vhost}") == [], "the check must not declare queues"
        asyncio.run(RabbitQueue(rabbitmq.url(vhost)).check())
        assert "rabbitmq queues" not in checks(tmp_path, RUNE_QUEUE=rabbitmq.url(vhost))
        found = checks(tmp_path, code=1, RUNE_QUEUE=rabbitmq.url(vhost), RUNE_QUEUE_KIND="quorum")
        assert found["rabbitmq queues"]["verdict"] == "bad"
        assert "workflow.execution" in found["rabbitmq queues"]["found"]
        assert "RUNE_QUEUE_KIND" in found["rabbitmq queues"]["advice"]


def test_rabbitmq_permissions_are_checked_per_role(tmp_path: Path) -> None:
    rabbitmq = broker()
    passwords = {"worker": "w1", "master": "m1"}
    with rabbitmq.vhost() as vhost:
        rabbitmq.api("POST", "definitions", definitions(Topology(), vhost, passwords))
        urls = {role: rabbitmq.url(vhost, user_name(role), word) for role, word in passwords.items()}
        found = {role: checks(tmp_path, RUNE_QUEUE=url)["rabbitmq rights"] for role, url in urls.items()}
        assert {each["verdict"] for each in found.values()} == {"ok"}
        assert "a worker needs" in found["worker"]["found"]
        assert "the API and the command line need" in found["master"]["found"]
        readable = "workflow\\.(node\\.status|completion|execution\\.dead)"
        rabbitmq.user("plain", "word", vhost, "^$", "workflow\\..*", readable)
        found["plain"] = checks(tmp_path, RUNE_QUEUE=rabbitmq.url(vhost, "plain", "word"))["rabbitmq rights"]
        assert "the API and the command line need" in found["plain"]["found"]
        rabbitmq.user(user_name("worker"), "w1", vhost, "^$", "workflow\\..*", readable)
        worse = checks(tmp_path, code=1, RUNE_QUEUE=urls["worker"])["rabbitmq rights"]
        assert worse["verdict"] == "bad"
        assert worse["found"].startswith("as worker, cannot read workflow.execution")


@pytest.mark.parametrize(("skew", "verdict"), [(0.2, "ok"), (-2.0, "warn"), (9.0, "bad")])
def test_clock_skew_sets_verdict(skew: float, verdict: str) -> None:
    assert clock("redis clock", skew).verdict == verdict


@pytest.mark.parametrize(("free", "verdict"), [(2**40, "ok"), (2**29, "warn"), (2**20, "bad")])
def test_free_disk_space_sets_verdict(free: int, verdict: str) -> None:
    (found,) = free_space(ClusterSurvey(journal="", state="", free_space=(("/somewhere", free),)))
    assert found.verdict == verdict


def test_traces_check_shows_collector(tmp_path: Path) -> None:
    report = InProcessCli(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT="http://collector:4318").json("doctor")
    (found,) = [each["found"] for each in report["checks"] if each["check"] == "traces"]
    assert found == "to http://collector:4318/v1/traces"
    report = InProcessCli(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT="http://c:4318", RUNE_TRACES="off").json(
        "doctor"
    )
    assert [each["found"] for each in report["checks"] if each["check"] == "traces"] == ["off"]
