"""A resource of the API, whose operations are declared in one line: `@keys.post("/keys", requires="admin")`.

The rest of what FastAPI documents is read from the handler. Its return annotation tells the status and the shape of a
success (`Created[NewKey]`), its name is the id of the operation, the first line of its docstring the summary, and the
rest of its docstring the description.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.routing import BaseRoute

from rune.core.permissions import Right
from rune.server import auth
from rune.server.responses import MEDIA, NoContent, NotChanged, Reply
from rune.server.routing import PREFIX, ApiRoute, LateResponse

PROBLEM: dict[str, Any] = {
    "description": "The request was rejected.",
    "content": {MEDIA: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}},
}
"""The documentation of an error."""

NOT_CHANGED = "Not modified since `If-None-Match`."

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Response | LateResponse]])
Responses = Mapping[int, str | Mapping[str, Any]]


class Resource:
    """The operations of a resource. All of them declare a right; it is checked before the body is read."""

    def __init__(self, tag: str, *, route_class: type[ApiRoute] = ApiRoute) -> None:
        self.tag = tag
        self.router = APIRouter(
            prefix=PREFIX,
            tags=[tag],
            route_class=route_class,
            responses={"default": PROBLEM},
            redirect_slashes=False,
            strict_content_type=False,
            generate_unique_id_function=_operation_id,
        )
        self.get = _Method(self.router, "GET")
        self.post = _Method(self.router, "POST")
        self.put = _Method(self.router, "PUT")
        self.patch = _Method(self.router, "PATCH")
        self.delete = _Method(self.router, "DELETE")

    @property
    def routes(self) -> list[BaseRoute]:
        return self.router.routes


class _Method:
    """The decorator of the operations with one HTTP method."""

    def __init__(self, router: APIRouter, method: str) -> None:
        self._router = router
        self._method = method

    def __call__(
        self,
        path: str,
        *,
        requires: Right,
        responses: Responses | None = None,
        body: Mapping[str, Any] | None = None,
        hidden: bool = False,
    ) -> Callable[[Handler], Handler]:
        """Declare an operation. `responses`: what further statuses mean, or their whole documentation; `body`: the
        documentation of a body that the handler reads itself; `hidden`: not part of the document."""

        def declare(handler: Handler) -> Handler:
            summary, description = _texts(handler)
            self._router.add_api_route(
                path,
                handler,
                methods=[self._method],
                dependencies=[auth.requires(requires)],
                summary=summary,
                description=description,
                openapi_extra=None if body is None else {"requestBody": body},
                include_in_schema=not hidden,
                **_returned(handler, responses or {}),
            )
            return handler

        return declare


def json_or_yaml(value: Any) -> dict[str, Any]:
    """Return the documentation of a body in JSON or YAML, with an example."""
    return {
        "required": True,
        "content": {
            "application/json": {"schema": {"type": "object"}, "examples": example(value)},
            "application/yaml": {"schema": {}},
        },
    }


def example(value: Any) -> dict[str, Any]:
    """Return the documentation of an example."""
    return {"example": {"value": value}}


def _operation_id(route: APIRoute) -> str:
    """Return the name of the handler: a verb and the resource, such as `list_executions`."""
    return route.name


def _texts(handler: Callable[..., Any]) -> tuple[str, str]:
    """Return the summary and the description of an operation."""
    summary, _, description = inspect.cleandoc(handler.__doc__ or "").partition("\n\n")
    if not summary.endswith(".") or "\n" in summary or not description:
        raise TypeError(
            f"{handler.__qualname__}: its docstring has no summary of one line, or no description after it"
        )
    return summary.removesuffix("."), description


def _returned(handler: Callable[..., Any], responses: Responses) -> dict[str, Any]:
    """Return how FastAPI documents what a handler returns. Of several kinds of responses the first is the success."""
    annotation = _resolved(handler.__annotations__.get("return"), handler.__globals__)
    kinds = get_args(annotation) if get_origin(annotation) in {Union, UnionType} else (annotation,)
    if NotChanged in kinds:
        responses = {**responses, NotChanged.status_code: NOT_CHANGED}
    kind = get_origin(kinds[0]) or kinds[0]
    shape: Any = None
    if issubclass(kind, Reply):
        (argument,) = get_args(kinds[0])
        shape = None if argument is Any else argument
        success = {"status_code": kind.status_code}
    elif kind is NoContent:
        success = {"status_code": NoContent.status_code, "response_class": Response}
    elif kind is Response:
        success = {"response_class": Response}
    else:
        raise TypeError(f"{handler.__qualname__} returns {kind}, of which nothing is documented")
    further = {status: _documented(status, meaning, shape) for status, meaning in responses.items()}
    return {**success, "response_model": shape, "responses": further}


def _resolved(annotation: Any, names: dict[str, Any]) -> Any:
    """Resolve one annotation: 1.5 ms for all handlers, where `get_type_hints` of the handlers takes 20."""
    return get_type_hints(SimpleNamespace(__annotations__={"of": annotation}), names)["of"]


def _documented(status: int, meaning: str | Mapping[str, Any], shape: Any) -> dict[str, Any]:
    """Return the documentation of a further status: a success has the same shape, an error is a problem document."""
    if not isinstance(meaning, str):
        return dict(meaning)
    if status >= 400:
        return {**PROBLEM, "description": meaning}
    return {**({"model": shape} if status in {200, 201, 202} else {}), "description": meaning}
