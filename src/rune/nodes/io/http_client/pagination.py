"""Pagination: finds the next page of a response by link header, body field, cursor, page number or offset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import quote_plus, unquote_plus

from msgspec import Meta
from msgspec.structs import replace

from rune.core.definition.problems import Problem
from rune.errors import NodeFailure
from rune.nodes.io.http_client.ssrf import Target
from rune.nodes.schema import Model, conflicting, missing, plain

PAGES = "HTTP_PAGES"
MAX_PAGES = 100
_PARAMETERS = {"cursor": "cursor", "page": "page", "offset": "offset"}
_ABSENT = object()


class Pagination(Model, kw_only=True, frozen=True):
    """How to find further pages."""

    style: Annotated[
        Literal["link", "next", "cursor", "page", "offset"],
        Meta(
            description="`link`: a `Link` header with `rel=next`. `next`: a URL in the body. `cursor`: a value in the "
            "body is sent as a query parameter. `page`, `offset`: a number that increases until a page is empty."
        ),
    ]
    path: Annotated[
        str | None,
        Meta(description="Path of the URL or cursor in the body, such as `paging.next`. Default: `next`."),
    ] = None
    parameter: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="Query parameter to set. Default: `cursor`, `page` or `offset`, like the style."),
    ] = None
    items: Annotated[
        str | None,
        Meta(description="Path of the list in the body, such as `data.users`. Default: the body itself."),
    ] = None
    start: Annotated[
        int | None, Meta(description="Initial number. Default: 1 for `page`, 0 for `offset`.")
    ] = None
    step: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Increment of the number. Default: 1 for `page`, the page size for `offset`."),
    ] = None
    max_pages: Annotated[int, Meta(ge=1, le=1_000, description="Maximum number of pages.")] = MAX_PAGES


def combined(parameters: Mapping[str, Any]) -> list[Problem]:
    """Report parameters that conflict with or require one another."""
    given = parameters.get("pagination")
    if not isinstance(given, dict):
        return []
    problems = []
    if parameters.get("follow_next"):
        problems.append(
            conflicting(
                "follow_next", "`pagination` is also given", "`pagination: {style: link}` is equivalent"
            )
        )
    if given.get("style") == "cursor" and not given.get("path"):
        problems.append(
            missing("pagination.path", "`path` is required", "give the path of the cursor in the body")
        )
    return problems


def rule_of(parameters: Any) -> Pagination | None:
    """Return the pagination rule of the parameters; `follow_next` is short for the `link` style."""
    if parameters.pagination is not None:
        found: Pagination = parameters.pagination
        return found
    max_links = parameters.follow_next
    if not max_links:
        return None
    return Pagination(style="link", max_pages=MAX_PAGES if max_links is True else int(max_links) + 1)


def first(rule: Pagination | None, where: Target) -> Target:
    """Return the URL of the first page."""
    if rule is None or rule.style not in ("page", "offset"):
        return where
    return _with_parameter(where, rule, _start(rule))


def items_of(rule: Pagination, body: Any, label: str) -> list[Any] | None:
    """Return the items of a page; None if the body is not a list and no path to one is configured."""
    if rule.items is None:
        if isinstance(body, list):
            return body
        if rule.style in ("page", "offset"):
            raise NodeFailure(
                f"{label}: the body is not a list; set `pagination.items` to the path of the list", code=PAGES
            )
        return None
    found = get_path(body, rule.items)
    if found is None or found is _ABSENT:
        return []
    if not isinstance(found, list):
        raise NodeFailure(f"{label}: no list at `{rule.items}`", code=PAGES)
    return found


def following(
    rule: Pagination, where: Target, body: Any, fetched: list[list[Any] | None], label: str
) -> str | Target | None:
    """Return the next page: a URL from the body, or the same URL with another number or cursor; None at the end."""
    if rule.style == "next":
        found = get_path(body, rule.path or "next")
        if found is _ABSENT or found is None or found == "" or found is False:
            return None
        if not isinstance(found, str):
            raise NodeFailure(f"{label}: no URL at `{rule.path or 'next'}`", code=PAGES)
        return found
    if rule.style == "cursor":
        found = get_path(body, rule.path or "next")
        if found is _ABSENT or found is None or found == "" or found is False:
            return None
        if isinstance(found, list | dict):
            raise NodeFailure(f"{label}: no cursor at `{rule.path}`", code=PAGES)
        return _with_parameter(where, rule, plain(found))
    if not fetched[-1]:
        return None
    increment = len(fetched) * (rule.step or 1)
    if rule.style == "offset" and rule.step is None:
        increment = sum(len(each or ()) for each in fetched)
    return _with_parameter(where, rule, _start(rule) + increment)


def _start(rule: Pagination) -> int:
    if rule.start is not None:
        return rule.start
    return 1 if rule.style == "page" else 0


def _with_parameter(where: Target, rule: Pagination, value: int | str) -> Target:
    """Return the URL with one query parameter replaced and the others unchanged."""
    name = rule.parameter or _PARAMETERS[rule.style]
    path, _, query = where.resource.partition("?")
    kept = [each for each in query.split("&") if each and unquote_plus(each.partition("=")[0]) != name]
    kept.append(f"{quote_plus(name)}={quote_plus(str(value))}")
    return replace(where, resource=f"{path}?{'&'.join(kept)}")


def get_path(value: Any, path: str) -> Any:
    """Return the value at a dotted path; a number indexes a list."""
    for part in path.split("."):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isascii() and part.isdigit() and int(part[:9]) < len(value):
            value = value[int(part)]
        else:
            return _ABSENT
    return value
