"""Operations of the API are documented by their handlers."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.openapi.utils import get_openapi
from starlette.responses import Response

from rune.api.access import LimitsView
from rune.server.resource import Resource, json_or_yaml
from rune.server.responses import Accepted, Created, NoContent, NotChanged, Reply
from rune.server.routing import permission_of
from tests.support.each import for_each

SHAPE = {"application/json": {"schema": {"$ref": "#/components/schemas/LimitsView"}}}
PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}


def documented(resource: Resource) -> dict[str, Any]:
    """The documentation of the only operation of a resource."""
    document = get_openapi(title="Things", version="1", routes=resource.routes)
    ((operation,),) = [path.values() for path in document["paths"].values()]
    found: dict[str, Any] = operation
    return found


def returning(annotation: Any, responses: dict[int, Any] | None = None) -> dict[str, Any]:
    """The responses of an operation by status, for a handler with this return annotation."""
    things = Resource("things")

    async def get_thing() -> Any:
        """Get a thing.

        Or nothing."""

    get_thing.__annotations__["return"] = annotation
    things.get("/thing", requires="view", responses=responses)(get_thing)
    return {status: each for status, each in documented(things)["responses"].items() if status != "default"}


@for_each(
    "kind",
    [
        (Reply[LimitsView], "200", SHAPE),
        (Reply[Any], "200", {"application/json": {"schema": {}}}),
        (Created[LimitsView], "201", SHAPE),
        (Accepted[LimitsView], "202", SHAPE),
        (NoContent, "204", None),
    ],
)
def test_return_annotation_tells_status_and_shape(kind: tuple[Any, str, Any]) -> None:
    annotation, status, content = kind

    described = returning(annotation)

    assert list(described) == [status]
    assert described[status].get("content") == content
    assert described[status]["description"] == "Get a thing"


@for_each(
    "sent",
    [(Reply({}), 200), (Created({}), 201), (Accepted({}), 202), (NoContent(), 204), (NotChanged("x"), 304)],
)
def test_response_has_the_status_that_is_documented(sent: tuple[Response, int]) -> None:
    response, status = sent
    assert response.status_code == status


def test_first_kind_of_response_is_the_success() -> None:
    described = returning(Accepted[LimitsView] | Reply[LimitsView], {200: "It exists."})

    assert list(described) == ["202", "200"]
    assert described["200"] == {"description": "It exists.", "content": SHAPE}


def test_further_statuses_are_documented() -> None:
    stream = {"content": {"text/event-stream": {"schema": {"type": "string"}}}}
    described = returning(Response | NotChanged, {200: stream, 409: "It has ended."})

    assert described["200"]["content"] == stream["content"]
    assert described["409"] == {"description": "It has ended.", "content": PROBLEM}
    assert described["304"] == {"description": "Not modified since `If-None-Match`."}


@for_each("annotation", [None, LimitsView, int | str])
def test_handler_that_returns_no_response_is_rejected(annotation: Any) -> None:
    with pytest.raises(TypeError, match="get_thing returns"):
        returning(annotation)


def test_docstring_is_summary_and_description() -> None:
    things = Resource("things")

    @things.post("/things", requires="edit", body=json_or_yaml({"id": 1}))
    async def create_thing() -> Created[LimitsView]:
        """Create a thing.

        By its id. Again
        changes nothing."""
        return Created(LimitsView())

    described = documented(things)

    assert described["summary"] == "Create a thing"
    assert described["description"] == "By its id. Again\nchanges nothing."
    assert described["operationId"] == "create_thing"
    assert described["tags"] == ["things"]
    assert described["x-needs"] == "edit"
    assert described["requestBody"]["content"].keys() == {"application/json", "application/yaml"}
    assert [permission_of(each) for each in things.routes] == ["edit"]


@for_each("text", [None, "Create a thing.", "Create a thing\n\nby its id.", "Create\na thing.\n\nBy its id."])
def test_docstring_without_summary_or_description_is_rejected(text: str | None) -> None:
    async def create_thing() -> NoContent:
        return NoContent()

    create_thing.__doc__ = text
    with pytest.raises(TypeError, match="create_thing: its docstring"):
        Resource("things").post("/things", requires="edit")(create_thing)


def test_hidden_operation_is_no_part_of_the_document() -> None:
    things = Resource("things")

    @things.get("/things", requires="view", hidden=True)
    async def list_things() -> Reply[Any]:
        """List things.

        All of them."""
        return Reply([])

    assert get_openapi(title="Things", version="1", routes=things.routes)["paths"] == {}
