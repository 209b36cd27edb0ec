"""The doctor tells who may not do what is needed, whose clock is off, and what to do about it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from rune.adapters.rabbitmq.queue import RabbitQueue
from rune.adapters.rabbitmq.topology import Topology, definitions, user_name
from rune.cli.commands.doctor import clock, rooms
from rune.ports.inspection import ClusterSurvey
from tests.acceptance.cli.here import Here
from tests.integration.cluster.standing import stores
from tests.support.services.postgres import database_of, server
from tests.support.services.rabbitmq import broker
from tests.support.services.redis_server import RedisServer

READER, CLERK = "tele_reader", "tele_clerk"


def checks(folder: Path, code: int = 0, **environment: str) -> dict[str, dict[str, Any]]:
    """What the doctor finds, by check."""
    made = stores(folder)
    given = {"RUNE_JOURNAL": made.journal, "RUNE_STATE": made.state, "RUNE_QUEUE": made.queue, **environment}
    told = Here(folder, RUNE_PREFIX="doctor", **given).json("doctor", code=code)
    return {each["check"]: each for each in told["checks"]}


def test_a_cluster_that_is_well(tmp_path: Path) -> None:
    found = checks(tmp_path)
    rights = found["postgresql rights"]
    assert rights["verdict"] == found["redis rights"]["verdict"] == "ok"
    assert rights["found"] == "rune can run as worker, scheduler, api; may change the schema"
    assert (found["postgresql clock"]["verdict"], found["redis clock"]["verdict"]) == ("ok", "ok")
    assert str(tmp_path) in found["disk"]["found"]
    assert found["traces"]["found"] == "off"
    assert found["metrics"]["verdict"] == "ok"


def test_a_user_of_postgresql_who_only_reads_is_told_what_is_missing(tmp_path: Path) -> None:
    journal = stores(tmp_path).journal
    make = f"CREATE ROLE {READER} LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {READER}"
    server().sql(make, database_of(tmp_path))
    found = checks(tmp_path, code=1, RUNE_JOURNAL=journal.replace("//rune@", f"//{READER}@"))
    assert found["postgresql rights"]["verdict"] == "bad"
    assert "INSERT on execution" in found["postgresql rights"]["found"]
    assert "rune migrate --roles" in found["postgresql rights"]["advice"]
    assert found["schema"]["verdict"] == "ok"


def test_a_user_of_postgresql_who_makes_no_tables_may_take_part(tmp_path: Path) -> None:
    journal = stores(tmp_path).journal
    make = f"CREATE ROLE {CLERK} LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO {CLERK}"
    server().sql(make, database_of(tmp_path))
    found = checks(tmp_path, RUNE_JOURNAL=journal.replace("//rune@", f"//{CLERK}@"))
    assert found["postgresql rights"]["verdict"] == "ok"
    assert "may not change the schema" in found["postgresql rights"]["found"]


@pytest.fixture
def guarded() -> Iterator[RedisServer]:
    made = RedisServer()
    try:
        yield made
    finally:
        made.stop()


def test_a_user_of_redis_is_told_which_commands_are_not_allowed(tmp_path: Path, guarded: RedisServer) -> None:
    with redis.Redis(unix_socket_path=guarded.socket) as admin:
        admin.execute_command(
            "ACL", "SETUSER", "short", "on", ">word", "~doctor:*", "&doctor:*", "+@all", "-xadd", "-zrem"
        )
        before = admin.dbsize()
        url = f"unix://short:word@{guarded.socket}"
        found = checks(tmp_path, code=1, RUNE_STATE=url, RUNE_QUEUE=url)
        kept = admin.keys("doctor:doctor*")
    assert found["redis rights"]["verdict"] == "bad"
    assert found["redis rights"]["found"] == "not allowed: zrem, xadd"
    assert (before, kept) == (0, [])


def test_a_user_of_rabbitmq_is_told_what_cannot_be_written_or_read(tmp_path: Path) -> None:
    held = broker()
    with held.vhost() as place:
        found = checks(tmp_path, RUNE_QUEUE=held.url(place))
        assert found["rabbitmq"]["verdict"] == "ok"
        assert "do not exist yet" in found["rabbitmq rights"]["found"]
        asyncio.run(RabbitQueue(held.url(place)).check())
        assert checks(tmp_path, RUNE_QUEUE=held.url(place))["rabbitmq rights"]["found"].startswith(
            "all permissions"
        )
        held.user("limited", "word", place, ".*", "workflow.execution", "workflow.node.status")
        url = held.url(place, "limited", "word")
        found = checks(tmp_path, code=1, RUNE_QUEUE=url)
        assert "read workflow.execution" in found["rabbitmq rights"]["found"]
        assert "word" not in str(found)


def test_queues_that_were_made_otherwise_are_found_out(tmp_path: Path) -> None:
    held = broker()
    with held.vhost() as place:
        assert "rabbitmq queues" not in checks(tmp_path, RUNE_QUEUE=held.url(place))
        assert held.api("GET", f"queues/{place}") == [], "nothing is made by looking"
        asyncio.run(RabbitQueue(held.url(place)).check())
        assert "rabbitmq queues" not in checks(tmp_path, RUNE_QUEUE=held.url(place))
        found = checks(tmp_path, code=1, RUNE_QUEUE=held.url(place), RUNE_QUEUE_KIND="quorum")
        assert found["rabbitmq queues"]["verdict"] == "bad"
        assert "workflow.execution" in found["rabbitmq queues"]["found"]
        assert "RUNE_QUEUE_KIND" in found["rabbitmq queues"]["advice"]


def test_a_user_of_rabbitmq_is_asked_for_what_its_role_does(tmp_path: Path) -> None:
    held = broker()
    words = {"worker": "w1", "master": "m1"}
    with held.vhost() as place:
        held.api("POST", "definitions", definitions(Topology(), place, words))
        urls = {role: held.url(place, user_name(role), word) for role, word in words.items()}
        found = {role: checks(tmp_path, RUNE_QUEUE=url)["rabbitmq rights"] for role, url in urls.items()}
        assert {each["verdict"] for each in found.values()} == {"ok"}
        assert "a worker needs" in found["worker"]["found"]
        assert "the API and the command line need" in found["master"]["found"]
        listens = "workflow\\.(node\\.status|completion|execution\\.dead)"
        held.user("plain", "word", place, "^$", "workflow\\..*", listens)
        found["plain"] = checks(tmp_path, RUNE_QUEUE=held.url(place, "plain", "word"))["rabbitmq rights"]
        assert "the API and the command line need" in found["plain"]["found"]
        held.user(user_name("worker"), "w1", place, "^$", "workflow\\..*", listens)
        worse = checks(tmp_path, code=1, RUNE_QUEUE=urls["worker"])["rabbitmq rights"]
        assert worse["verdict"] == "bad"
        assert worse["found"].startswith("as worker, cannot read workflow.execution")


@pytest.mark.parametrize(("skew", "verdict"), [(0.2, "ok"), (-2.0, "warn"), (9.0, "bad")])
def test_a_clock_that_is_off_is_seen(skew: float, verdict: str) -> None:
    assert clock("redis clock", skew).verdict == verdict


@pytest.mark.parametrize(("free", "verdict"), [(2**40, "ok"), (2**29, "warn"), (2**20, "bad")])
def test_a_disk_that_is_full_is_seen(free: int, verdict: str) -> None:
    (found,) = rooms(ClusterSurvey(journal="", state="", rooms=(("/somewhere", free),)))
    assert found.verdict == verdict


def test_traces_and_their_collector_are_told(tmp_path: Path) -> None:
    told = Here(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT="http://collector:4318").json("doctor")
    (found,) = [each["found"] for each in told["checks"] if each["check"] == "traces"]
    assert found == "to http://collector:4318/v1/traces"
    told = Here(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT="http://c:4318", RUNE_TRACES="off").json("doctor")
    assert [each["found"] for each in told["checks"] if each["check"] == "traces"] == ["off"]
