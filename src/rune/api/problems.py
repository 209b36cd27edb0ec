"""Rejected requests."""

from __future__ import annotations

from rune.api.base import View, absent
from rune.core.definition.problems import Problem


class ProblemDocument(View, frozen=True, kw_only=True, omit_defaults=True):
    """Why a request was rejected. `type` is the section of the documentation about the `code`, with what
    to do. `problems` lists all problems of a document, `limit` names the limit that was exceeded. `request_id` is
    also in the header `X-Request-Id` and in the log of the server."""

    type: str = absent("")
    title: str = absent("")
    status: int
    code: str
    detail: str
    problems: tuple[Problem, ...] = ()
    limit: str = ""
    request_id: str = ""
