"""Pagination of the `http` node in every style."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from rune.core.execution.outcome import Outcome
from rune.nodes.registry import standard_catalogue
from tests.support.io_nodes import send_request
from tests.unit.nodes.runner import error, output

ITEMS = list(range(7))


class PagedServer:
    """A server with seven numbers, three per page, in each pagination style."""

    def __init__(self) -> None:
        self.queries: list[dict[str, str]] = []

    async def handle(self, request: web.Request) -> web.Response:
        self.queries.append(dict(request.query))
        return getattr(self, request.path.strip("/"))(request)  # type: ignore[no-any-return]

    def link(self, request: web.Request) -> web.Response:
        start = int(request.query.get("at", "0"))
        following = f'</link?at={start + 3}>; rel="next"' if start + 3 < 7 else ""
        return web.json_response(ITEMS[start : start + 3], headers={"Link": following})

    def next(self, request: web.Request) -> web.Response:
        start = int(request.query.get("at", "0"))
        following = f"/next?at={start + 3}" if start + 3 < 7 else None
        return web.json_response({"data": {"rows": ITEMS[start : start + 3]}, "paging": {"next": following}})

    def cursor(self, request: web.Request) -> web.Response:
        start = int(request.query.get("after", "0").removeprefix("c "))
        following = {"cursor": f"c {start + 3}"} if start + 3 < 7 else {}
        return web.json_response({"items": ITEMS[start : start + 3], "meta": following})

    def page(self, request: web.Request) -> web.Response:
        start = 3 * (int(request.query["p"]) - 1)
        return web.json_response({"items": ITEMS[start : start + 3]})

    def offset(self, request: web.Request) -> web.Response:
        start = int(request.query["offset"])
        return web.json_response(ITEMS[start : start + 3])

    def gone(self, request: web.Request) -> web.Response:
        number = int(request.query["page"])
        return web.json_response([number], status=200 if number < 3 else 404)

    def broken(self, request: web.Request) -> web.Response:
        number = int(request.query["page"])
        return web.json_response([number], status=200 if number < 3 else 500)

    def round(self, request: web.Request) -> web.Response:
        return web.json_response({"next": "/round?x=1", "items": [1]})

    def away(self, request: web.Request) -> web.Response:
        return web.json_response({"next": "http://169.254.169.254/"})

    def odd(self, request: web.Request) -> web.Response:
        return web.json_response({"next": {"no": "address"}, "items": "none"})


def fetch(path: str, /, **rule: Any) -> tuple[Outcome, PagedServer]:
    server = PagedServer()
    following = {"query": rule.pop("query")} if "query" in rule else {}
    return send_request(server.handle, f"/{path}", pagination=rule, **following), server


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("link", {"style": "link"}),
        ("next", {"style": "next", "path": "paging.next", "items": "data.rows"}),
        ("cursor", {"style": "cursor", "path": "meta.cursor", "parameter": "after", "items": "items"}),
        ("page", {"style": "page", "parameter": "p", "items": "items"}),
        ("page", {"style": "page", "parameter": "p", "items": "items", "start": "1", "step": "1"}),
        ("offset", {"style": "offset"}),
        ("offset", {"style": "offset", "step": "3", "max_pages": "50"}),
    ],
)
def test_each_style_collects_all_pages(path: str, rule: dict[str, Any]) -> None:
    outcome, _ = fetch(path, **rule)

    found = output(outcome)
    assert (found["body"], found["pages"], found["complete"]) == (ITEMS, 3, True)


def test_query_is_kept_on_every_page() -> None:
    _, server = fetch(
        "page", style="page", parameter="p", items="items", query={"q": "a b&c", "p": 9, "p2": 1}
    )

    assert [each["p"] for each in server.queries] == ["1", "2", "3", "4"]
    assert all((each["q"], each["p2"]) == ("a b&c", "1") for each in server.queries)


def test_max_pages_stops_pagination() -> None:
    outcome, server = fetch("offset", style="offset", max_pages=2)

    found = output(outcome)
    assert (found["body"], found["pages"], found["complete"]) == (ITEMS[:6], 2, False)
    assert len(server.queries) == 2


def test_404_after_last_page_ends_pagination() -> None:
    outcome, _ = fetch("gone", style="page")

    assert (output(outcome)["body"], output(outcome)["status"]) == ([1, 2], 200)


def test_failing_page_fails_node() -> None:
    outcome, _ = fetch("broken", style="page")

    assert (error(outcome).code, error(outcome).details["status"]) == ("HTTP_STATUS", 500)


def test_error_on_first_page_is_output() -> None:
    outcome, server = fetch("broken", style="page", start=7)

    assert (output(outcome)["status"], output(outcome)["body"]) == (500, [7])
    assert len(server.queries) == 1


@pytest.mark.parametrize(
    ("path", "rule", "code"),
    [
        ("round", {"style": "next"}, "HTTP_PAGES"),
        ("away", {"style": "next"}, "HTTP_BLOCKED"),
        ("odd", {"style": "next"}, "HTTP_PAGES"),
        ("odd", {"style": "cursor", "path": "next"}, "HTTP_PAGES"),
        ("odd", {"style": "offset"}, "HTTP_PAGES"),
        ("odd", {"style": "next", "items": "items"}, "HTTP_PAGES"),
    ],
)
def test_invalid_next_page_fails(path: str, rule: dict[str, Any], code: str) -> None:
    outcome, server = fetch(path, **rule)

    assert error(outcome).code == code
    assert len(server.queries) <= 2


def test_body_lists_page_bodies_without_items_path() -> None:
    outcome, _ = fetch("next", style="next", path="paging.next")

    assert [each["data"]["rows"] for each in output(outcome)["body"]] == [ITEMS[:3], ITEMS[3:6], ITEMS[6:]]


def test_max_bytes_applies_to_all_pages() -> None:
    server = PagedServer()

    outcome = send_request(server.handle, "/offset", pagination={"style": "offset"}, max_bytes=20)

    assert error(outcome).code == "HTTP_TOO_LARGE"


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({"pagination": {"style": "cursor"}}, "pagination.path"),
        ({"pagination": {"style": "link"}, "follow_next": True}, "follow_next"),
        ({"pagination": {"style": "sideways"}}, "pagination.style"),
        ({"pagination": {"style": "page", "max_pages": 5000}}, "pagination.max_pages"),
        ({"pagination": {}}, "pagination.style"),
    ],
)
def test_invalid_pagination_is_rejected_by_check(parameters: Any, path: str) -> None:
    found = standard_catalogue()["http"].check({"url": "x", **parameters}, lambda text: False)

    assert [each.path for each in found] == [path]
