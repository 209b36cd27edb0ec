"""Executions that an external AMQP client starts with messages of the documented format."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rune.core.limits import LIMITS
from tests.integration.cluster.external_messages import (
    FRAME,
    MIDDLE,
    SPLIT,
    START,
    TRIGGER,
    edge,
    edit,
    message,
    new_id,
    with_client,
)
from tests.support.amqp_client import Client
from tests.support.clusters import clusters

pytestmark = clusters("rabbitmq-travelling")


class _Users(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"name": "John Doe", "email": "john@example.com"}).encode()
        missing = "missing" in self.path
        self.send_response(404 if missing else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def users() -> Iterator[str]:
    """The URL of a server that responds with a user."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Users)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    with server:
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def fetch(id: str, users: str, path: str = "/users/{{ $trigger.user_id }}") -> dict[str, Any]:
    return {"id": id, "type": "http", "parameters": {"method": "GET", "url": f"{users}{path}"}}


def mail(id: str, subject: str = "Hello") -> dict[str, Any]:
    return {
        "id": id,
        "type": "smtp",
        "parameters": {
            "from": "engine@example.com",
            "to": "john@example.com",
            "subject": subject,
            "body": "welcome",
        },
    }


@pytest.mark.parametrize(("call", "send"), [("http_fetch_user", "smtp_send_email"), ("http_1", "smtp_1")])
def test_linear_workflow_publishes_documented_statuses(amqp: str, users: str, call: str, send: str) -> None:
    """Section 6 and appendix A.1: a trigger, a call, a mail."""
    definition = {
        "nodes": [TRIGGER, fetch(call, users), mail(send)],
        "edges": [edge("trigger", call), edge(call, send)],
    }

    async def exchange(client: Client) -> None:
        execution = new_id()
        await client.publish(message(execution, call, definition, START))
        done = await client.wait_for_completion(execution, statuses=4)
        assert client.steps(execution) == [
            (call, "running"),
            (call, "success"),
            (send, "running"),
            (send, "success"),
        ]
        assert done["status"] == "completed"
        assert done["workflow_id"] == "wf_email_notification"
        assert done["final_context"]["$trigger"] == START["$trigger"]
        assert done["final_context"][f"${call}"]["body"]["name"] == "John Doe"
        called = client.statuses(execution)[1]
        assert called["output"]["status"] == 200
        assert called["error"] is None
        assert set(done["final_context"]) == {"$trigger", f"${call}", f"${send}"}

    with_client(amqp, exchange)


def test_conditional_workflow_publishes_documented_statuses(amqp: str, users: str) -> None:
    """Appendix A.2: a call, a condition, one of two mails."""
    definition = {
        "nodes": [
            TRIGGER,
            fetch("http_1", users),
            {
                "id": "conditional_1",
                "type": "conditional",
                "parameters": {
                    "expression": "{{ $http_1.status == 200 }}",
                    "true_edge_id": "yes",
                    "false_edge_id": "no",
                },
            },
            mail("smtp_success"),
            mail("smtp_failure"),
        ],
        "edges": [
            edge("trigger", "http_1"),
            edge("http_1", "conditional_1"),
            {"id": "yes", "src": "conditional_1", "dst": "smtp_success"},
            {"id": "no", "src": "conditional_1", "dst": "smtp_failure"},
        ],
    }

    async def exchange(client: Client) -> None:
        execution = new_id()
        await client.publish(message(execution, "http_1", definition, START))
        done = await client.wait_for_completion(execution, statuses=7)
        steps = client.steps(execution)
        assert [each for each in steps if each[1] != "running"] == [
            ("http_1", "success"),
            ("conditional_1", "success"),
            ("smtp_failure", "skipped"),
            ("smtp_success", "success"),
        ]
        assert done["status"] == "completed"
        succeeded = {
            each["node_id"]: each for each in client.statuses(execution) if each["status"] == "success"
        }
        assert succeeded["conditional_1"]["output"] == {"result": True}

    with_client(amqp, exchange)


def test_failed_status_contains_error(amqp: str, users: str) -> None:
    definition = {
        "nodes": [TRIGGER, {"id": "bad", "type": "fail", "parameters": {"message": "no luck"}}],
        "edges": [edge("trigger", "bad")],
    }

    async def exchange(client: Client) -> None:
        execution = new_id()
        await client.publish(message(execution, "bad", definition, START))
        done = await client.wait_for_completion(execution, statuses=2)
        failed = client.statuses(execution)[-1]
        assert (failed["status"], failed["error"]["message"], failed["output"]) == ("failed", "no luck", None)
        assert done["status"] == "halted"
        assert done["error"]["message"] == "no luck"

    with_client(amqp, exchange)


def test_repeated_message_starts_nothing(amqp: str, users: str) -> None:
    definition = {"nodes": [TRIGGER, edit("one", 1)], "edges": [edge("trigger", "one")]}

    async def exchange(client: Client) -> None:
        execution, after = new_id(), new_id()
        for _ in range(3):
            await client.publish(message(execution, "one", definition, START))
        await client.wait_for_completion(execution, statuses=2)
        await client.publish(message(execution, "one", definition, START))
        await client.publish(message(after, "one", definition, START))
        await client.wait_for_completion(after)
        assert client.steps(execution) == [("one", "running"), ("one", "success")]
        assert len(client.completions(execution)) == 1

    with_client(amqp, exchange)


def test_message_for_inner_node_starts_there(amqp: str, users: str) -> None:
    """Branches that cannot be reached from the node are dead: the joins open without them."""

    async def exchange(client: Client) -> None:
        execution = new_id()
        context = {**START, "$a": {"n": 41}}
        await client.publish(message(execution, "b", MIDDLE, context))
        done = await client.wait_for_completion(execution, statuses=8)
        assert done["status"] == "completed"
        found = done["final_context"]
        assert found["$a"] == {"n": 41}
        assert (found["$b"], found["$c"]) == ({"n": 42}, {"n": 43})
        assert found["$all"] == [{"n": 43}]
        assert found["$first"] == {"n": 43}
        assert "$side" not in found
        assert {node for node, _ in client.steps(execution)} == {"b", "c", "all", "first"}

    with_client(amqp, exchange)


BEHIND: dict[str, Any] = {
    "nodes": [
        {"id": "a", "type": "noop"},
        {"id": "b", "type": "noop"},
        {"id": "c", "type": "conditional", "parameters": {"expression": "{{ true }}"}},
        {"id": "d", "type": "log", "parameters": {"message": "{{ $json }}"}},
        {
            "id": "h",
            "type": "fail",
            "error": {"type": "branch", "error_edge": "wrong"},
            "parameters": {"message": ""},
        },
        {"id": "x", "type": "log", "parameters": {"message": "{{ $error.code }}"}},
    ],
    "edges": [
        edge("b", "c"),
        edge("a", "c"),
        edge("c", "d", label="true"),
        edge("c", "h", label="false"),
        {"id": "wrong", "src": "h", "dst": "x", "is_error": True},
    ],
}
ERROR = {"code": "BROKEN", "message": "no luck", "details": {"n": 1}}


@pytest.mark.parametrize(
    ("node", "context", "output"),
    [
        ("d", {"$a": {"A": 1}, "$b": {"B": 2}, "$c": {"result": True}}, {"a": {"A": 1}, "b": {"B": 2}}),
        ("d", {"$a": {"A": 1}, "$c": {"result": True}}, {"A": 1}),
        ("x", {"$h": {"error": ERROR}}, "BROKEN"),
        ("x", {"$h": {"error": ERROR}, "$error": ERROR}, "BROKEN"),
        ("x", {"$error": ERROR}, "BROKEN"),
        ("d", {"$a": {"A": 1}, "$error": None}, {"A": 1}),
    ],
)
def test_node_in_the_middle_sees_payload_and_error(
    amqp: str, node: str, context: dict[str, Any], output: Any
) -> None:
    async def exchange(client: Client) -> None:
        execution = new_id()
        await client.publish(message(execution, node, BEHIND, {"$trigger": {}, **context}))
        done = await client.wait_for_completion(execution)
        assert (done["status"], done["final_context"][f"${node}"]) == ("completed", output)

    with_client(amqp, exchange)


def test_error_of_no_node_is_dead_lettered(amqp: str) -> None:
    async def exchange(client: Client) -> None:
        execution = new_id()
        context = {"$trigger": {}, "$c": {"result": True}, "$error": ERROR}
        await client.publish(message(execution, "d", BEHIND, context))
        assert (await client.take_dead_letter(execution))[0] == "INVALID"

    with_client(amqp, exchange)


def test_large_output_of_a_start_in_the_middle_is_kept(amqp: str) -> None:
    async def exchange(client: Client) -> None:
        execution = new_id()
        given = {**START, "$a": {"n": 41, "list": [{}] * 200_000}}
        await client.publish(message(execution, "b", MIDDLE, given))
        done = await client.wait_for_completion(execution)
        assert (done["status"], done["final_context"]["$b"]) == ("completed", {"n": 42})

    with_client(amqp, exchange)


@pytest.mark.parametrize(
    "given",
    [[{}] * LIMITS.payload_containers, "x" * LIMITS.payload_bytes],
    ids=["objects", "bytes"],
)
def test_outputs_beyond_the_limits_of_a_start_are_dead_lettered(amqp: str, given: Any) -> None:
    async def exchange(client: Client) -> None:
        execution = new_id()
        await client.publish(message(execution, "b", MIDDLE, {**START, "$a": given}), checked=False)
        code, _ = await client.take_dead_letter(execution)
        assert code == "LIMIT_EXCEEDED"
        assert client.steps(execution) == []

    with_client(amqp, exchange)


@pytest.mark.parametrize("by", ["output", "error"])
def test_error_of_a_start_in_the_middle_is_bounded(amqp: str, by: str) -> None:
    error = {"code": "BROKEN", "message": "x" * 1_000_000, "details": {"n": 1, "long": ["y"] * 100_000}}
    seen = {
        "id": "x",
        "type": "log",
        "parameters": {"message": "{{ len($error.message) }} {{ $error.details }}"},
    }
    definition = {**BEHIND, "nodes": [*(each for each in BEHIND["nodes"] if each["id"] != "x"), seen]}

    async def exchange(client: Client) -> None:
        execution = new_id()
        given = {"$h": {"error": error}} if by == "output" else {"$error": error}
        await client.publish(message(execution, "x", definition, {"$trigger": {}, **given}))
        done = await client.wait_for_completion(execution)
        assert done["final_context"]["$x"] == '8192 {"n":1,"omitted":["long"]}'

    with_client(amqp, exchange)


def test_repeated_start_at_inner_node_starts_once(amqp: str, users: str) -> None:
    async def exchange(client: Client) -> None:
        execution = new_id()
        for _ in range(2):
            await client.publish(message(execution, "b", MIDDLE, {**START, "$a": {"n": 1}}))
        await client.wait_for_completion(execution, statuses=8)
        await client.publish(message(execution, "b", MIDDLE, {**START, "$a": {"n": 1}}))
        after = new_id()
        await client.publish(message(after, "a", MIDDLE, START))
        await client.wait_for_completion(after)
        assert len(client.completions(execution)) == 1
        assert client.steps(execution).count(("b", "success")) == 1

    with_client(amqp, exchange)


@pytest.mark.parametrize(
    ("node", "definition", "more", "code"),
    [
        ("work", SPLIT, {"lineage_stack": [FRAME]}, "UNKNOWN_SCOPE"),
        ("work", SPLIT, {}, "UNKNOWN_SCOPE"),
        ("all", MIDDLE, {"from_node": "c"}, "UNKNOWN_SCOPE"),
        ("missing", MIDDLE, {}, "UNKNOWN_NODE"),
        ("a", {"nodes": [TRIGGER], "edges": [edge("trigger", "a")]}, {}, "INVALID"),
    ],
)
def test_message_without_valid_place_is_dead_lettered(
    amqp: str, node: str, definition: Any, more: dict[str, Any], code: str
) -> None:
    async def exchange(client: Client) -> None:
        execution = new_id()
        context = {"$trigger": {"items": [1, 2]}}
        await client.publish(message(execution, node, definition, context, **more))
        found, body = await client.take_dead_letter(execution)
        assert found == code
        assert json.loads(body)["execution_id"] == execution
        assert client.steps(execution) == []

    with_client(amqp, exchange)


def test_other_definition_for_known_id_is_dead_lettered(amqp: str) -> None:
    async def exchange(client: Client) -> None:
        execution = new_id()
        await client.publish(message(execution, "a", MIDDLE, START))
        await client.wait_for_completion(execution)
        other = {"nodes": [TRIGGER, edit("a", 2)], "edges": [edge("trigger", "a")]}
        await client.publish(message(execution, "a", other, START))
        assert (await client.take_dead_letter(execution))[0] == "DEFINITION_MISMATCH"
        assert len(client.completions(execution)) == 1

    with_client(amqp, exchange)


def test_unknown_definition_hash_is_dead_lettered(amqp: str) -> None:
    async def exchange(client: Client) -> None:
        execution = new_id()
        sent = message(execution, "a", None, START)
        del sent["workflow_definition"]
        await client.publish({**sent, "definition_ref": "0" * 64})
        assert (await client.take_dead_letter(execution))[0] == "UNKNOWN_DEFINITION"

    with_client(amqp, exchange)


def test_progress_of_items_is_reported_by_one_worker_at_a_time(amqp: str) -> None:
    """Two workers run the items. Reports are at most one a second and never go back."""
    definition = {
        "nodes": [
            {"id": "each", "type": "split", "parameters": {"input_array": "{{ range(600) }}"}},
            {"id": "item", "type": "noop", "parameters": {"effectful": True}},
            {"id": "list", "type": "aggregator"},
        ],
        "edges": [edge("each", "item"), edge("item", "list")],
    }

    async def exchange(client: Client) -> None:
        execution = new_id()
        await client.publish(message(execution, "each", definition, {"$trigger": {}}))
        await client.wait_for_completion(execution, statuses=1203)
        reports = [each for each in client.statuses(execution) if each["status"] == "waiting"]
        processed = [each["details"]["processed"] for each in reports]
        assert processed == sorted(processed)
        times = [datetime.fromisoformat(each["executed_at"]) for each in client.statuses(execution)]
        assert len(reports) <= (max(times) - min(times)).total_seconds() + 2

    with_client(amqp, exchange)


def test_waiting_join_publishes_status(amqp: str) -> None:
    definition = {
        "nodes": [
            TRIGGER,
            edit("quick", 1),
            {"id": "slow", "type": "wait", "parameters": {"amount": 3}},
            {"id": "other", "type": "wait", "parameters": {"amount": 3}},
            {"id": "both", "type": "merge", "parameters": {"wait_mode": "wait_for_all"}},
            {"id": "some", "type": "merge", "parameters": {"wait_mode": {"at_least": 2}}},
        ],
        "edges": [
            edge("trigger", "quick"),
            edge("trigger", "slow"),
            edge("trigger", "other"),
            edge("quick", "some"),
            edge("slow", "some"),
            edge("other", "some"),
            edge("quick", "both"),
            edge("slow", "both"),
        ],
    }

    async def exchange(client: Client) -> None:
        execution = new_id()
        await client.publish(message(execution, "quick", definition, START))
        await client.wait_for_completion(execution, statuses=10)
        waiting = {
            each["node_id"]: each for each in client.statuses(execution) if each["status"] == "waiting"
        }
        assert waiting["both"]["details"] == {"arrived": 1, "expected": 2}
        assert waiting["some"]["details"] == {"arrived": 1, "expected": 2}
        assert waiting["slow"]["metadata"]["resume_at"] > 0
        assert waiting["slow"]["metadata"]["timer_id"] == "wait:slow@/"

    with_client(amqp, exchange)


def waits(id: str, seconds: float) -> dict[str, Any]:
    return {"id": id, "type": "wait", "parameters": {"amount": seconds}}


def fails_after(id: str) -> list[dict[str, Any]]:
    return [waits(f"{id}_wait", 2), {"id": id, "type": "fail", "parameters": {"message": "broken"}}]


JOIN_OF_THREE = {
    "nodes": [
        edit("root", 1),
        edit("quick", 1),
        waits("soon", 0.4),
        waits("late", 3),
        {"id": "all", "type": "merge", "parameters": {"wait_mode": "wait_for_all"}},
    ],
    "edges": [
        *(edge("root", name) for name in ("quick", "soon", "late")),
        *(edge(name, "all") for name in ("quick", "soon", "late")),
    ],
}


def figures(client: Client, execution: str, node: str) -> list[Any]:
    return [
        each["details"]
        for each in client.statuses(execution)
        if each["node_id"] == node and each["status"] == "waiting"
    ]


def test_newest_arrival_at_a_join_is_reported_for_each_of_many_executions(amqp: str) -> None:
    async def exchange(client: Client) -> None:
        executions = [new_id() for _ in range(12)]
        for execution in executions:
            await client.publish(message(execution, "root", JOIN_OF_THREE, START))
        for execution in executions:
            await client.wait_for_completion(execution)
        last = [figures(client, execution, "all")[-1] for execution in executions]
        assert last == [{"arrived": 2, "expected": 3}] * len(executions)

    with_client(amqp, exchange)


@pytest.mark.parametrize("by", ["halt", "timeout", "own timeout"])
def test_join_that_waits_when_its_execution_ends_has_one_final_status(amqp: str, by: str) -> None:
    own = {"timeout": 2} if by == "own timeout" else {}
    definition = {
        "nodes": [
            edit("root", 1),
            edit("quick", 1),
            waits("late", 30),
            {"id": "all", "type": "merge", "parameters": {"wait_mode": "wait_for_all", **own}},
            *(fails_after("broken") if by == "halt" else []),
        ],
        "edges": [
            edge("root", "quick"),
            edge("root", "late"),
            edge("quick", "all"),
            edge("late", "all"),
            *([edge("root", "broken_wait"), edge("broken_wait", "broken")] if by == "halt" else []),
        ],
        **({"settings": {"timeout": 2}} if by == "timeout" else {}),
    }

    async def exchange(client: Client) -> None:
        execution = new_id()
        await client.publish(message(execution, "root", definition, START))
        await client.wait_for_completion(execution)
        final = "failed" if by == "own timeout" else "cancelled"
        async with asyncio.timeout(30):
            while ("all", final) not in client.steps(execution):
                await client.wait_for_message()
        statuses = [each for each in client.statuses(execution) if each["node_id"] == "all"]
        assert statuses[0]["status"] == "waiting"
        assert {each["status"] for each in statuses} == {"waiting", final}
        if final == "cancelled":
            assert "the execution ended as" in statuses[-1]["metadata"]["reason"]
            assert statuses[-1]["duration_ms"] > 0

    with_client(amqp, exchange)
