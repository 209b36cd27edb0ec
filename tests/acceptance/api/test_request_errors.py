"""Errors of parameters and bodies name the parameter, the value and what is allowed."""

from __future__ import annotations

import gzip
from importlib.resources import files
from pathlib import Path

from rune.server.responses import STATUS, problem
from tests.support.api_server import HELLO, RunningServer, run
from tools.docs.errors import find_codes

QUERIES = {
    "/executions?limit=0": "the query parameter `limit` must be at least 1, not `0`",
    "/executions?limit=2000": "the query parameter `limit` must be at most 1000, not `2000`",
    "/executions?limit=many": "the query parameter `limit` must be a whole number, not `many`",
    "/executions?status=done": "the query parameter `status` must be one of `running`, `paused`, `completed`, `failed`,"
    " `halted`, `cancelled`, not `done`",
    "/executions?failed_items=maybe": "the query parameter `failed_items` must be `true` or `false`, not `maybe`",
    "/executions?label=blue": "the query parameter `label` must be of the form `name=value`, not `blue`",
    "/executions?workflow=a%20b": "the query parameter `workflow` must be at most 128 letters, digits, `_` and `-`,"
    " not `a b`",
    "/executions?created_after=yesterday": "the query parameter `created_after` must be a time with a time zone, such"
    " as `2026-01-31T12:00:00Z`, not `yesterday`",
    "/executions?created_after=2026-01-31": "the query parameter `created_after` must be a time with a time zone, such"
    " as `2026-01-31T12:00:00Z`, not `2026-01-31`",
    "/executions?q=": "the query parameter `q` must be text of at least 1 character, not ``",
    "/dead-letters?page=2": "the query parameter `page` is unknown; allowed are `limit`, `cursor`",
    "/executions/x?wait=100": "the query parameter `wait` must be at most 60.0, not `100`",
}


def test_invalid_query_is_described_in_plain_words(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        found = {path: await server.get(path, 422) for path in QUERIES}
        assert {path: each["detail"] for path, each in found.items()} == QUERIES
        assert {each["code"] for each in found.values()} == {"BAD_QUERY"}

    run(tmp_path, work)


def test_body_with_content_encoding_is_refused_by_name(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        for path in ("/workflows/hello/executions", "/workflows", "/executions"):
            sent = await server.ask(
                "POST", path, 415, content=gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"}
            )
            assert (sent["code"], "`gzip`" in sent["detail"]) == ("BAD_MEDIA", True)
        plain = {"Content-Encoding": "identity"}
        await server.post("/workflows/hello/executions", {}, 202, headers=plain)

    run(tmp_path, work)


def test_value_of_unknown_parameter_and_of_body_is_not_shown(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        unknown = await server.get("/executions?key=hush-hush", 422)
        assert "`key` is unknown; allowed are `limit`" in unknown["detail"]
        body = {"input": {}, "priority": "hush-hush", "labels": {"a": 1}, "extra": "hush-hush"}
        sent = await server.post("/workflows/hello/executions", body, 422)
        assert sent["code"] == "BAD_BODY"
        assert "`priority` of the body must be a whole number" in sent["detail"]
        assert "`labels.a` of the body must be text" in sent["detail"]
        assert "`extra` of the body is unknown" in sent["detail"]
        header = await server.post(
            "/workflows/hello/executions", {}, 422, headers={"Idempotency-Key": "hush-hush" * 100}
        )
        assert header["detail"] == "the header `Idempotency-Key` must be text of at most 255 characters"
        assert "hush-hush" not in str([unknown, sent, header])

    run(tmp_path, work)


def test_type_of_a_problem_is_the_section_about_its_code(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        for path, status in (("/executions/nobody", 404), ("/executions?limit=0", 422), ("/nowhere", 404)):
            found = await server.get(path, status)
            page, _, anchor = found["type"].partition("#")
            opened = await server.http.get(page, headers={"Authorization": ""})
            assert opened.status_code == 200
            assert opened.headers["content-type"].startswith("text/html")
            assert f'<h3 id="{anchor}">{found["code"]}</h3>' in opened.text

    run(tmp_path, work)


def test_every_error_code_has_a_section_on_the_page_of_its_type() -> None:
    page = (files("rune.server") / "static" / "remedies.html").read_text(encoding="utf-8")
    types = {code: problem(STATUS.get(code, 400), code, "").type for code in find_codes()}

    assert len(types) > len(STATUS)
    assert [code for code, type in types.items() if f'<h3 id="{type.partition("#")[2]}">' not in page] == []
