"""`http` through pages, in every style."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from rune.core.execution.outcome import Outcome
from rune.nodes.registry import standard_catalogue
from tests.unit.nodes.io.test_http import ask
from tests.unit.nodes.running import error, output

WHOLE = list(range(7))


class Shelf:
    """Seven numbers, three a page, in the style that is asked for."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(dict(request.query))
        return getattr(self, request.path.strip("/"))(request)  # type: ignore[no-any-return]

    def link(self, request: web.Request) -> web.Response:
        at = int(request.query.get("at", "0"))
        more = f'</link?at={at + 3}>; rel="next"' if at + 3 < 7 else ""
        return web.json_response(WHOLE[at : at + 3], headers={"Link": more})

    def next(self, request: web.Request) -> web.Response:
        at = int(request.query.get("at", "0"))
        more = f"/next?at={at + 3}" if at + 3 < 7 else None
        return web.json_response({"data": {"rows": WHOLE[at : at + 3]}, "paging": {"next": more}})

    def cursor(self, request: web.Request) -> web.Response:
        at = int(request.query.get("after", "0").removeprefix("c "))
        more = {"cursor": f"c {at + 3}"} if at + 3 < 7 else {}
        return web.json_response({"items": WHOLE[at : at + 3], "meta": more})

    def page(self, request: web.Request) -> web.Response:
        at = 3 * (int(request.query["p"]) - 1)
        return web.json_response({"items": WHOLE[at : at + 3]})

    def offset(self, request: web.Request) -> web.Response:
        at = int(request.query["offset"])
        return web.json_response(WHOLE[at : at + 3])

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


def fetched(shelf_path: str, /, **rule: Any) -> tuple[Outcome, Shelf]:
    shelf = Shelf()
    more = {"query": rule.pop("query")} if "query" in rule else {}
    return ask(shelf.answer, f"/{shelf_path}", pagination=rule, **more), shelf


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
def test_every_style_brings_the_whole_list(path: str, rule: dict[str, Any]) -> None:
    outcome, _ = fetched(path, **rule)

    found = output(outcome)
    assert (found["body"], found["pages"], found["complete"]) == (WHOLE, 3, True)


def test_the_rest_of_the_query_stays() -> None:
    _, shelf = fetched(
        "page", style="page", parameter="p", items="items", query={"q": "a b&c", "p": 9, "p2": 1}
    )

    assert [each["p"] for each in shelf.asked] == ["1", "2", "3", "4"]
    assert all((each["q"], each["p2"]) == ("a b&c", "1") for each in shelf.asked)


def test_so_many_pages_and_no_more() -> None:
    outcome, shelf = fetched("offset", style="offset", max_pages=2)

    found = output(outcome)
    assert (found["body"], found["pages"], found["complete"]) == (WHOLE[:6], 2, False)
    assert len(shelf.asked) == 2


def test_behind_the_last_page_there_may_be_nothing() -> None:
    outcome, _ = fetched("gone", style="page")

    assert (output(outcome)["body"], output(outcome)["status"]) == ([1, 2], 200)


def test_a_page_that_fails_fails_the_node() -> None:
    outcome, _ = fetched("broken", style="page")

    assert (error(outcome).code, error(outcome).details["status"]) == ("HTTP_STATUS", 500)


def test_a_first_answer_that_is_an_error_is_the_answer() -> None:
    outcome, shelf = fetched("broken", style="page", start=7)

    assert (output(outcome)["status"], output(outcome)["body"]) == (500, [7])
    assert len(shelf.asked) == 1


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
def test_pages_that_lead_nowhere_good(path: str, rule: dict[str, Any], code: str) -> None:
    outcome, shelf = fetched(path, **rule)

    assert error(outcome).code == code
    assert len(shelf.asked) <= 2


def test_without_lists_the_body_is_the_bodies() -> None:
    outcome, _ = fetched("next", style="next", path="paging.next")

    assert [each["data"]["rows"] for each in output(outcome)["body"]] == [WHOLE[:3], WHOLE[3:6], WHOLE[6:]]


def test_all_pages_share_the_bytes_of_one_answer() -> None:
    shelf = Shelf()

    outcome = ask(shelf.answer, "/offset", pagination={"style": "offset"}, max_bytes=20)

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
def test_rules_that_make_no_sense_are_refused_before_anything_runs(parameters: Any, path: str) -> None:
    found = standard_catalogue()["http"].check({"url": "x", **parameters}, lambda text: False)

    assert [each.path for each in found] == [path]
