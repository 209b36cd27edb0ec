"""The document of the API (OpenAPI 3.1), made from the operations themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

import rune
from rune.master.operation import PATHS, PREFIX, Operation, Resource
from rune.master.problems import MEDIA, ProblemDocument

_REF = "#/components/schemas/{name}"
_HEADERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Idempotency-Key": (
        "Done at most once under this key; asked again, the answer is the first one's.",
        {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]([ -~]*[!-~])?$"},
    ),
    "If-Match": ("Only if this is what is there: the `ETag` that was read.", {"type": "string"}),
    "If-None-Match": ("Not if this is what is there; `*`: not if there is anything.", {"type": "string"}),
    "Last-Event-ID": (
        "The `id` of the last event that was received.",
        {"type": "string", "pattern": "^[0-9]{1,15}$"},
    ),
}


def openapi(resources: Sequence[Resource]) -> dict[str, Any]:
    """The whole document."""
    operations = [(each, resource.tag) for resource in resources for each in resource.operations]
    schemas = _Schemas([each for each, _ in operations])
    paths: dict[str, dict[str, Any]] = {}
    for each, tag in operations:
        place = re.sub(r":path}", "}", PREFIX + each.path)
        paths.setdefault(place, {})[each.method.lower()] = _operation(each, tag, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Rune",
            "version": rune.__version__,
            "summary": "A durable workflow engine.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "responses": {"Problem": _problem()},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
        "tags": [{"name": name} for name in dict.fromkeys(tag for _, tag in operations)],
    }


class _Schemas:
    """The schemas of everything that is taken or answered, each once."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        types: list[Any] = [ProblemDocument]
        for each in operations:
            types += [kind for kind in (each.body, each.query, each.answer) if kind not in (None, bytes)]
        self._types = list({id(each): each for each in types}.values())
        made, self.components = msgspec.json.schema_components(self._types, ref_template=_REF)
        self._made = {id(each): schema for each, schema in zip(self._types, made, strict=True)}

    def of(self, kind: Any) -> dict[str, Any]:
        """The schema of a type."""
        return {} if kind is bytes else self._made[id(kind)]

    def properties(self, kind: Any) -> dict[str, Any]:
        """The schemas of the fields of a type."""
        name = self.of(kind)["$ref"].rpartition("/")[2]
        found: dict[str, Any] = self.components[name]
        return found


def _operation(each: Operation, tag: str, schemas: _Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": each.act.__name__ if tag != "executions" else f"execution_{each.act.__name__}",
        "tags": [tag],
        "summary": each.summary,
        "description": (each.act.__doc__ or "").strip(),
        "x-needs": each.need,
        "parameters": [*_paths(each), *_query(each, schemas), *_headers(each)],
        "responses": _responses(each, schemas),
    }
    if each.body is not None:
        content: dict[str, Any] = {
            "schema": {"type": "object"} if each.body is bytes else schemas.of(each.body)
        }
        if each.example is not None:
            content["examples"] = {"example": {"value": each.example}}
        media = {kind: content for kind in each.media if kind == "application/json"}
        for kind in each.media:
            media.setdefault(kind, {"schema": {}})
        found["requestBody"] = {"required": not each.optional, "content": media}
    return found


def _paths(each: Operation) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": PATHS[name][1],
            "schema": {"type": "string", "pattern": f"^{PATHS[name][0]}$"},
        }
        for name in each.names
    ]


def _query(each: Operation, schemas: _Schemas) -> list[dict[str, Any]]:
    if each.query is None:
        return []
    shape = schemas.properties(each.query)
    required = shape.get("required", ())
    found = []
    for name, schema in shape.get("properties", {}).items():
        said = {key: value for key, value in schema.items() if key != "description"}
        if "anyOf" in said:  # a parameter that is not given is not null: it is not there
            kinds = [kind for kind in said["anyOf"] if kind != {"type": "null"}]
            said = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
        said = {key: value for key, value in said.items() if key != "default" or value is not None}
        parameter = {"name": name, "in": "query", "required": name in required, "schema": said}
        if "description" in schema:
            parameter["description"] = schema["description"]
        found.append(parameter)
    return found


def _headers(each: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "description": _HEADERS[name][0], "schema": _HEADERS[name][1]}
        for name in each.headers
    ]


def _responses(each: Operation, schemas: _Schemas) -> dict[str, Any]:
    said: dict[str, Any] = {"description": each.summary}
    if each.answer is not None:
        said["content"] = {each.answers: {"schema": schemas.of(each.answer)}}
    found: dict[str, Any] = {str(each.status): said}
    for status, text in each.also.items():
        if status < 300 and status != 204:
            found[str(status)] = {**said, "description": text}
        elif status >= 400:
            found[str(status)] = {**_problem(), "description": text}
        else:
            found[str(status)] = {"description": text}
    found["default"] = {"$ref": "#/components/responses/Problem"}
    return found


def _problem() -> dict[str, Any]:
    return {
        "description": "Refused, and why.",
        "content": {MEDIA: {"schema": {"$ref": _REF.format(name="ProblemDocument")}}},
    }
