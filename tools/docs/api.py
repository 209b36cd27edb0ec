"""The reference of the HTTP API, made from the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rune.server.app import document
from tools.docs.calls import QUERY, curl, python
from tools.docs.markdown import code, fence, page, schema_type, table

FOLDER = "reference/api"
Operation = tuple[str, str, Mapping[str, Any]]
VARIABLES = (
    "`RUNE_URL` is the address of the server and `client` is `rune.client.Client()`, which reads the same"
    " variable, and the key in `RUNE_API_KEY`. A server that requires a key also needs"
    ' `-H "Authorization: Bearer $RUNE_API_KEY"` in the request. The parameters of the path are variables.'
)


def pages() -> dict[str, str]:
    """Return one page per tag, the page of all types, the page that lists them, and the document itself."""
    found = document()
    tags = [each["name"] for each in found["tags"]]
    operations = operations_of(found)
    made = {
        f"{FOLDER}/index.md": _index(tags, operations),
        f"{FOLDER}/types.md": _types(found["components"]["schemas"]),
        f"{FOLDER}/openapi.json": json.dumps(found, indent=2, ensure_ascii=False),
    }
    for tag in tags:
        own = [each for each in operations if tag in each[2]["tags"]]
        blocks = [block for each in own for block in _operation(each)]
        blocks += ["## Variables of the examples", VARIABLES]
        made[f"{FOLDER}/{_file(tag)}"] = page(f"API: {tag}", blocks, audience="developer")
    return made


def operations_of(found: Mapping[str, Any]) -> list[Operation]:
    """Return the operations of an OpenAPI document."""
    return [
        (method, path, each) for path, methods in found["paths"].items() for method, each in methods.items()
    ]


def _file(tag: str) -> str:
    return f"{tag.replace(' ', '-')}.md"


def _index(tags: list[str], operations: list[Operation]) -> str:
    blocks = [
        "Every route, by resource. [The API](../../api.md) explains the rules that all of them share: authentication,"
        " errors, pages, preconditions, idempotency keys, live events. A server has the same document at"
        " `/api/v1/openapi.json`; here it is for [download](openapi.json). *Right* is the permission that the key"
        " needs, see [access](../../access.md)."
    ]
    for tag in tags:
        rows = [
            (
                f"[`{method.upper()} {path}`]({_file(tag)}#{each['operationId'].replace('_', '-')})",
                code(each.get("x-needs", "")),
                each["summary"],
            )
            for method, path, each in operations
            if tag in each["tags"]
        ]
        blocks += [f"## {tag.capitalize()}", table(("request", "right", ""), rows)]
    return page("API", blocks, audience="developer")


def _operation(operation: Operation) -> Iterator[str]:
    method, path, each = operation
    yield f"## {each['operationId'].replace('_', ' ')}"
    yield f"`{method.upper()} {path}` · right `{each.get('x-needs', 'none')}`"
    yield f"{each['summary']}. {each.get('description', '')}".replace("..", ".")
    rows = [
        (
            code(given["name"]),
            given["in"],
            schema_type(given["schema"]) + (", required" if given.get("required") else ""),
            given.get("description", ""),
        )
        for given in each.get("parameters", ())
    ]
    yield table(("parameter", "in", "type", "meaning"), rows)
    body = each.get("requestBody", {}).get("content", {})
    if body:
        kinds = [f"`{media}`: {_reference(content.get('schema', {}))}" for media, content in body.items()]
        yield f"Body: {'; '.join(kinds)}."
    answers = [
        (status, _answer(answer), answer.get("description", ""))
        for status, answer in sorted(each["responses"].items())
        if status != "default"
    ]
    yield table(("status", "body", ""), answers)
    for shell, call in examples(operation):
        yield fence("sh", shell)
        yield fence("python", call)


def _answer(answer: Mapping[str, Any]) -> str:
    return ", ".join(_reference(content.get("schema", {})) for content in answer.get("content", {}).values())


def _reference(schema: Mapping[str, Any]) -> str:
    """Return the type of a body, linked to its fields."""
    name = schema_type(schema)
    if "$ref" in schema:
        return f"[{name}](types.md#{name.lower()})"
    items = schema.get("items")
    if isinstance(items, dict) and "$ref" in items:
        return f"array of {_reference(items)}"
    return name


def examples(operation: Operation) -> Iterator[tuple[str, str]]:
    """Yield each example of an operation: with curl, and with the Python client."""
    method, path, each = operation
    needed = [given["name"] for given in each.get("parameters", ()) if given.get("required")]
    queries = {name: QUERY[name] for name in needed if f"{{{name}}}" not in path}
    content = each.get("requestBody", {}).get("content", {}).get("application/json", {})
    bodies = [example["value"] for example in content.get("examples", {}).values()] or [None]
    for body in bodies:
        yield curl(method, path, queries, body), python(each["operationId"], method, path, body)


def _types(schemas: Mapping[str, Any]) -> str:
    blocks = ["The fields of all bodies. A field that is not required may be absent."]
    for name, schema in sorted(schemas.items()):
        blocks.append(f"## {name}")
        blocks.append(schema.get("description", ""))
        required = schema.get("required", ())
        rows = [
            (code(field), _reference(kind), "yes" if field in required else "", kind.get("description", ""))
            for field, kind in schema.get("properties", {}).items()
        ]
        blocks.append(table(("field", "type", "required", "meaning"), rows) or f"{schema_type(schema)}")
    return page("API: types", blocks, audience="developer")
