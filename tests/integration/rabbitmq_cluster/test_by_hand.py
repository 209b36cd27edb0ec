"""Messages that a plain client writes by hand, and what it reads afterwards. Nothing of the engine is imported."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

import pytest

from tests.integration.rabbitmq_cluster.plain import Client, client

_numbers = count(100_001)


def new_id() -> str:
    return f"exec_20251009_{next(_numbers)}"


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
    """The address of a server that knows a user."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Users)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    with server:
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def talk(url: str, speak: Callable[[Client], Awaitable[None]]) -> None:
    async def run() -> None:
        async with client(url) as made:
            await speak(made)

    asyncio.run(run())


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


def edge(source: str, target: str, **more: Any) -> dict[str, Any]:
    return {"id": f"{source}-{target}", "src": source, "dst": target, **more}


def keep(id: str, value: Any) -> dict[str, Any]:
    made = {"mode": "keep_only", "assignments": [{"name": "n", "value": value}]}
    return {"id": id, "type": "edit", "parameters": made}


def message(execution: str, node: str, definition: Any, context: Any, **more: Any) -> dict[str, Any]:
    return {
        "workflow_id": "wf_email_notification",
        "execution_id": execution,
        "current_node": node,
        "workflow_definition": definition,
        "accumulated_context": context,
        **more,
    }


TRIGGER = {"id": "trigger", "type": "manual"}
START = {"$trigger": {"user_id": "user_123", "timestamp": "2025-10-09T12:34:56Z"}}


@pytest.mark.parametrize(("call", "send"), [("http_fetch_user", "smtp_send_email"), ("http_1", "smtp_1")])
def test_a_linear_workflow_is_told_as_the_appendix_says(amqp: str, users: str, call: str, send: str) -> None:
    """Section 6 and appendix A.1: a trigger, a call, a mail."""
    definition = {
        "nodes": [TRIGGER, fetch(call, users), mail(send)],
        "edges": [edge("trigger", call), edge(call, send)],
    }

    async def speak(plain: Client) -> None:
        execution = new_id()
        await plain.publish(message(execution, call, definition, START))
        done = await plain.completion(execution, statuses=4)
        assert plain.steps(execution) == [
            (call, "running"),
            (call, "success"),
            (send, "running"),
            (send, "success"),
        ]
        assert done["status"] == "completed"
        assert done["workflow_id"] == "wf_email_notification"
        assert done["final_context"]["$trigger"] == START["$trigger"]
        assert done["final_context"][f"${call}"]["body"]["name"] == "John Doe"
        called = plain.statuses(execution)[1]
        assert called["output"]["status"] == 200
        assert called["error"] is None
        assert set(done["final_context"]) == {"$trigger", f"${call}", f"${send}"}

    talk(amqp, speak)


def test_a_conditional_workflow_is_told_as_the_appendix_says(amqp: str, users: str) -> None:
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

    async def speak(plain: Client) -> None:
        execution = new_id()
        await plain.publish(message(execution, "http_1", definition, START))
        done = await plain.completion(execution, statuses=7)
        steps = plain.steps(execution)
        assert [each for each in steps if each[1] != "running"] == [
            ("http_1", "success"),
            ("conditional_1", "success"),
            ("smtp_failure", "skipped"),
            ("smtp_success", "success"),
        ]
        assert done["status"] == "completed"
        told = {each["node_id"]: each for each in plain.statuses(execution) if each["status"] == "success"}
        assert told["conditional_1"]["output"] == {"result": True}

    talk(amqp, speak)


def test_a_failure_is_told_with_its_error(amqp: str, users: str) -> None:
    definition = {
        "nodes": [TRIGGER, {"id": "bad", "type": "fail", "parameters": {"message": "no luck"}}],
        "edges": [edge("trigger", "bad")],
    }

    async def speak(plain: Client) -> None:
        execution = new_id()
        await plain.publish(message(execution, "bad", definition, START))
        done = await plain.completion(execution, statuses=2)
        failed = plain.statuses(execution)[-1]
        assert (failed["status"], failed["error"]["message"], failed["output"]) == ("failed", "no luck", None)
        assert done["status"] == "halted"
        assert done["error"]["message"] == "no luck"

    talk(amqp, speak)


def test_the_same_message_again_starts_nothing(amqp: str, users: str) -> None:
    definition = {"nodes": [TRIGGER, keep("one", 1)], "edges": [edge("trigger", "one")]}

    async def speak(plain: Client) -> None:
        execution, after = new_id(), new_id()
        for _ in range(3):
            await plain.publish(message(execution, "one", definition, START))
        await plain.completion(execution, statuses=2)
        await plain.publish(message(execution, "one", definition, START))
        await plain.publish(message(after, "one", definition, START))
        await plain.completion(after)
        assert plain.steps(execution) == [("one", "running"), ("one", "success")]
        assert len(plain.completions(execution)) == 1

    talk(amqp, speak)


MIDDLE = {
    "nodes": [
        TRIGGER,
        keep("a", 1),
        keep("b", "{{ $a.n + 1 }}"),
        keep("c", "{{ $b.n + 1 }}"),
        keep("side", 0),
        {"id": "all", "type": "merge", "parameters": {"wait_mode": "wait_for_all"}},
        {"id": "first", "type": "merge", "parameters": {"wait_mode": "wait_for_any"}},
    ],
    "edges": [
        edge("trigger", "a"),
        edge("a", "b"),
        edge("b", "c"),
        edge("a", "side"),
        edge("c", "all"),
        edge("side", "all"),
        edge("a", "first"),
        edge("c", "first"),
    ],
}


def test_a_message_for_a_node_in_the_middle_starts_there(amqp: str, users: str) -> None:
    """What cannot be reached from it is dead: the joins open with what comes from there alone."""

    async def speak(plain: Client) -> None:
        execution = new_id()
        context = {**START, "$a": {"n": 41}}
        await plain.publish(message(execution, "b", MIDDLE, context))
        done = await plain.completion(execution, statuses=8)
        assert done["status"] == "completed"
        found = done["final_context"]
        assert found["$a"] == {"n": 41}
        assert (found["$b"], found["$c"]) == ({"n": 42}, {"n": 43})
        assert found["$all"] == [{"n": 43}]
        assert found["$first"] == {"n": 43}
        assert "$side" not in found
        assert {node for node, _ in plain.steps(execution)} == {"b", "c", "all", "first"}

    talk(amqp, speak)


def test_a_start_in_the_middle_happens_once(amqp: str, users: str) -> None:
    async def speak(plain: Client) -> None:
        execution = new_id()
        for _ in range(2):
            await plain.publish(message(execution, "b", MIDDLE, {**START, "$a": {"n": 1}}))
        await plain.completion(execution, statuses=8)
        await plain.publish(message(execution, "b", MIDDLE, {**START, "$a": {"n": 1}}))
        after = new_id()
        await plain.publish(message(after, "a", MIDDLE, START))
        await plain.completion(after)
        assert len(plain.completions(execution)) == 1
        assert plain.steps(execution).count(("b", "success")) == 1

    talk(amqp, speak)


SPLIT = {
    "nodes": [
        TRIGGER,
        {"id": "each", "type": "split", "parameters": {"input_array": "{{ $trigger.items }}"}},
        keep("work", "{{ $item }}"),
        {"id": "list", "type": "aggregator"},
    ],
    "edges": [edge("trigger", "each"), edge("each", "work"), edge("work", "list")],
}
FRAME = {"split_node_id": "each", "item_index": 0, "branch_id": "b", "total_items": 2}


@pytest.mark.parametrize(
    ("node", "definition", "more", "code"),
    [
        ("work", SPLIT, {"lineage_stack": [FRAME]}, "UNKNOWN_SCOPE"),
        ("work", SPLIT, {}, "UNKNOWN_SCOPE"),
        ("all", MIDDLE, {"from_node": "c"}, "UNKNOWN_SCOPE"),
        ("nobody", MIDDLE, {}, "UNKNOWN_NODE"),
        ("a", {"nodes": [TRIGGER], "edges": [edge("trigger", "a")]}, {}, "INVALID"),
    ],
)
def test_what_cannot_be_placed_is_a_dead_letter(
    amqp: str, node: str, definition: Any, more: dict[str, Any], code: str
) -> None:
    async def speak(plain: Client) -> None:
        execution = new_id()
        context = {"$trigger": {"items": [1, 2]}}
        await plain.publish(message(execution, node, definition, context, **more))
        found, body = await plain.dead_letter(execution)
        assert found == code
        assert json.loads(body)["execution_id"] == execution
        assert plain.steps(execution) == []

    talk(amqp, speak)


def test_another_definition_under_a_known_id_is_a_dead_letter(amqp: str) -> None:
    async def speak(plain: Client) -> None:
        execution = new_id()
        await plain.publish(message(execution, "a", MIDDLE, START))
        await plain.completion(execution)
        other = {"nodes": [TRIGGER, keep("a", 2)], "edges": [edge("trigger", "a")]}
        await plain.publish(message(execution, "a", other, START))
        assert (await plain.dead_letter(execution))[0] == "DEFINITION_MISMATCH"
        assert len(plain.completions(execution)) == 1

    talk(amqp, speak)


def test_a_hash_that_nobody_knows_is_a_dead_letter(amqp: str) -> None:
    async def speak(plain: Client) -> None:
        execution = new_id()
        told = message(execution, "a", None, START)
        del told["workflow_definition"]
        await plain.publish({**told, "definition_ref": "0" * 64})
        assert (await plain.dead_letter(execution))[0] == "UNKNOWN_DEFINITION"

    talk(amqp, speak)


def test_who_waits_at_a_join_is_told(amqp: str) -> None:
    definition = {
        "nodes": [
            TRIGGER,
            keep("quick", 1),
            {"id": "slow", "type": "wait", "parameters": {"amount": 3}},
            {"id": "both", "type": "merge", "parameters": {"wait_mode": "wait_for_all"}},
        ],
        "edges": [
            edge("trigger", "quick"),
            edge("trigger", "slow"),
            edge("quick", "both"),
            edge("slow", "both"),
        ],
    }

    async def speak(plain: Client) -> None:
        execution = new_id()
        await plain.publish(message(execution, "quick", definition, START))
        await plain.completion(execution, statuses=6)
        waiting = {each["node_id"]: each for each in plain.statuses(execution) if each["status"] == "waiting"}
        assert waiting["both"]["details"] == {"arrived": 1, "expected": 2}
        assert waiting["slow"]["metadata"]["resume_at"] > 0
        assert waiting["slow"]["metadata"]["timer_id"] == "wait:slow@/"

    talk(amqp, speak)
