"""Pages: how one answer leads to the next, in the ways that are common."""

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
    """How further pages are found."""

    style: Annotated[
        Literal["link", "next", "cursor", "page", "offset"],
        Meta(
            description="`link`: a `Link` header with `rel=next`. `next`: an address in the body. `cursor`: a value in "
            "the body becomes a query parameter. `page`, `offset`: a number that grows until a page is empty."
        ),
    ]
    path: Annotated[
        str | None,
        Meta(
            description="Where in the body the address or the cursor stands, as `paging.next`. Default: `next`."
        ),
    ] = None
    parameter: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="Query parameter that is set. Default: `cursor`, `page` or `offset`, as the style is called."
        ),
    ] = None
    items: Annotated[
        str | None,
        Meta(description="Where in the body the list is, as `data.users`. Default: the body is the list."),
    ] = None
    start: Annotated[int | None, Meta(description="First number. Default: 1 for `page`, 0 for `offset`.")] = (
        None
    )
    step: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(
            description="How much the number grows. Default: 1 for `page`, the size of the page for `offset`."
        ),
    ] = None
    max_pages: Annotated[int, Meta(ge=1, le=1_000, description="Most pages to fetch.")] = MAX_PAGES


def combined(parameters: Mapping[str, Any]) -> list[Problem]:
    """Problems of parameters that exclude or need one another."""
    given = parameters.get("pagination")
    if not isinstance(given, dict):
        return []
    problems = []
    if parameters.get("follow_next"):
        problems.append(
            conflicting(
                "follow_next", "`pagination` is given too", "`pagination: {style: link}` means the same"
            )
        )
    if given.get("style") == "cursor" and not given.get("path"):
        problems.append(
            missing("pagination.path", "`path` is required", "say where in the body the cursor stands")
        )
    return problems


def rule_of(parameters: Any) -> Pagination | None:
    """The rule that the parameters ask for; `follow_next` is short for links."""
    if parameters.pagination is not None:
        found: Pagination = parameters.pagination
        return found
    wanted = parameters.follow_next
    if not wanted:
        return None
    return Pagination(style="link", max_pages=MAX_PAGES if wanted is True else int(wanted) + 1)


def first(rule: Pagination | None, where: Target) -> Target:
    """The address of the first page."""
    if rule is None or rule.style not in ("page", "offset"):
        return where
    return _with(where, rule, _start(rule))


def items_of(rule: Pagination, body: Any, label: str) -> list[Any] | None:
    """The list of a page; None where no list was asked for and there is none."""
    if rule.items is None:
        if isinstance(body, list):
            return body
        if rule.style in ("page", "offset"):
            raise NodeFailure(
                f"{label}: the body is no list; `pagination.items` says where the list is", code=PAGES
            )
        return None
    found = get_path(body, rule.items)
    if found is None or found is _ABSENT:
        return []
    if not isinstance(found, list):
        raise NodeFailure(f"{label}: there is no list at `{rule.items}`", code=PAGES)
    return found


def following(
    rule: Pagination, where: Target, body: Any, fetched: list[list[Any] | None], label: str
) -> str | Target | None:
    """What leads on: an address in the body, or the same address with another number or cursor."""
    if rule.style == "next":
        found = get_path(body, rule.path or "next")
        if found is _ABSENT or found is None or found == "" or found is False:
            return None
        if not isinstance(found, str):
            raise NodeFailure(f"{label}: there is no address at `{rule.path or 'next'}`", code=PAGES)
        return found
    if rule.style == "cursor":
        found = get_path(body, rule.path or "next")
        if found is _ABSENT or found is None or found == "" or found is False:
            return None
        if isinstance(found, list | dict):
            raise NodeFailure(f"{label}: there is no cursor at `{rule.path}`", code=PAGES)
        return _with(where, rule, plain(found))
    if not fetched[-1]:
        return None
    grown = len(fetched) * (rule.step or 1)
    if rule.style == "offset" and rule.step is None:
        grown = sum(len(each or ()) for each in fetched)
    return _with(where, rule, _start(rule) + grown)


def _start(rule: Pagination) -> int:
    if rule.start is not None:
        return rule.start
    return 1 if rule.style == "page" else 0


def _with(where: Target, rule: Pagination, value: int | str) -> Target:
    """The address with one query parameter set anew; the others stay as they are, letter by letter."""
    name = rule.parameter or _PARAMETERS[rule.style]
    path, _, query = where.resource.partition("?")
    kept = [each for each in query.split("&") if each and unquote_plus(each.partition("=")[0]) != name]
    kept.append(f"{quote_plus(name)}={quote_plus(str(value))}")
    return replace(where, resource=f"{path}?{'&'.join(kept)}")


def get_path(value: Any, path: str) -> Any:
    """What stands at a dotted path; a number is an index where it meets a list."""
    for part in path.split("."):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isascii() and part.isdigit() and int(part[:9]) < len(value):
            value = value[int(part)]
        else:
            return _ABSENT
    return value
