"""JSON Schema: of start payloads, which are checked here, and of workflow documents, for editors and other tools.

Checks have a limit on their work, see `value_schema`. The schema of documents is built from the
registered node types and describes every dialect that the loader accepts. What a schema cannot state, such as
references between nodes, is left to `check_document`: each valid document matches the schema, and most mistakes of one
field do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import Any

from rune.core.definition import problems as codes
from rune.core.definition.fields import MAX_ID_LENGTH
from rune.core.definition.problems import Problem
from rune.core.expr import ExpressionError, Meter, TimeBudgetError
from rune.core.limits import LIMITS, Limits
from rune.core.node_type import Catalogue, NodeType
from rune.documents.value_schema import Check, UnusableSchemaError, unusable_parts

_MAX_REPORTED = 50
_MAX_SHOWN_CHARS = 200
MAX_CHECK_S = 10
"""Estimated time that the check of one value against a schema may take."""
MAX_SCHEMAS_S = 1
"""Estimated time that the checks of all schemas of a document may take."""
_INLINE_NS = 10_000_000


class NeedsThreadError(Exception):
    """The check needs more time than it may use in the event loop."""


def _leave(cost: int) -> int:
    raise NeedsThreadError


def _limited(seconds: int) -> Meter:
    def refuse(cost: int) -> int:
        raise TimeBudgetError(f"it would take too long (limit: {seconds} s of estimated time)")

    return Meter(seconds * 1_000_000_000, refuse)


_METER: ContextVar[Meter | None] = ContextVar("schema-meter", default=None)


@contextmanager
def short_checks() -> Iterator[None]:
    """Allow checks about 10 ms in this context; one that needs more raises NeedsThreadError."""
    token = _METER.set(Meter(_INLINE_NS, _leave))
    try:
        yield
    finally:
        _METER.reset(token)


@contextmanager
def checks_of_one_document() -> Iterator[None]:
    """Let the checks of all schemas of a document share one limit."""
    token = _METER.set(_METER.get() or _limited(MAX_SCHEMAS_S))
    try:
        yield
    finally:
        _METER.reset(token)


def check_schema(schema: dict[str, Any]) -> list[Problem]:
    """Return the problems of a schema, with paths under `inputs`. Nothing is applied, so that the work is linear."""
    try:
        found = islice(unusable_parts(schema, _METER.get() or _limited(MAX_SCHEMAS_S)), _MAX_REPORTED)
        return [_schema_problem("inputs" + _path_text(path), _shortened(reason)) for path, reason in found]
    except TimeBudgetError as error:
        return [_too_expensive("inputs", f"the schema cannot be checked: {error.message}")]


def check_value(schema: dict[str, Any], value: Any, meter: Meter | None = None) -> list[Problem]:
    """Return where a start payload violates its schema, at most `_MAX_REPORTED` problems. `meter`: a budget that the
    check shares with other work."""
    try:
        found = Check(schema, meter or _METER.get() or _limited(MAX_CHECK_S), _MAX_REPORTED).run(value)
    except TimeBudgetError as error:
        return [_too_expensive("input", f"the value cannot be checked against its schema: {error.message}")]
    except (UnusableSchemaError, ExpressionError) as error:
        return [_schema_problem("inputs", f"the schema cannot be applied: {error}")]
    problems = [
        Problem(
            "input" + _path_text(each.path),
            codes.INPUT_MISMATCH,
            _shortened(each.message),
            f"see `inputs/{'/'.join(map(str, each.part))}`",
        )
        for each in found
    ]
    return sorted(problems, key=lambda each: each.path)


def _too_expensive(path: str, message: str) -> Problem:
    return Problem(
        path, codes.SCHEMA_TOO_EXPENSIVE, message, "use fewer alternatives and references for each value"
    )


def _schema_problem(path: str, message: str) -> Problem:
    return Problem(
        path, codes.BAD_SCHEMA, message, "`inputs` is a self-contained JSON Schema (draft 2020-12)"
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN_CHARS else text[: _MAX_SHOWN_CHARS - 1] + "…"


def _path_text(parts: Any) -> str:
    return "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in parts)


DRAFT = "http://json-schema.org/draft-07/schema#"
"""The draft that the YAML and JSON plug-ins of editors support best."""

Schema = dict[str, Any]

_YEAR_S = 366 * 24 * 3600
_EXPRESSION = {"$ref": "#/definitions/expression"}
_NUMBER_TEXT = {"type": "string", "pattern": r"^\s*([-+]?[0-9.eE+-]+|[tT]rue|[fF]alse|null)\s*$"}
_CONTAINER_KEYS = ("items", "additionalProperties")


def workflow_schema(catalogue: Catalogue, *, limits: Limits = LIMITS) -> Schema:
    """Return the JSON Schema of a workflow document with these node types."""
    types = {each.name: each for each in catalogue.values()}
    return {
        "$schema": DRAFT,
        "title": "Rune workflow",
        "type": "object",
        "properties": {
            "id": _optional(_reference("id", "The workflow's id. Default: made from the name.")),
            "name": _optional(_text("The name that people see.")),
            "inputs": _optional({"type": "object", "description": "A JSON Schema for the start payload."}),
            "settings": _optional(_reference("settings", "How executions run.")),
            "nodes": {
                "type": "array",
                "description": "The steps of the workflow.",
                "minItems": 1,
                "maxItems": limits.nodes,
                "items": {"$ref": "#/definitions/node"},
            },
            "edges": _optional(
                {
                    "type": "array",
                    "description": "The connections between nodes.",
                    "maxItems": limits.edges,
                    "items": {"$ref": "#/definitions/edge"},
                }
            ),
            **_annotations(),
        },
        "required": ["nodes"],
        "additionalProperties": False,
        "definitions": {
            "id": {"type": "string", "pattern": "^[A-Za-z0-9_-]+$", "maxLength": MAX_ID_LENGTH},
            "expression": {
                "type": "string",
                "description": "An expression: `{{ … }}`, or a reference such as `$fetch.body`.",
                "pattern": r"\{\{|\$",
            },
            "settings": _settings(),
            "retry": _retry(),
            "error": _error_policy(),
            "credentials": _credentials(),
            "edge": _edge(),
            "node": _node(catalogue, types),
            **{f"parameters.{name}": _parameters(each) for name, each in types.items()},
        },
    }


def _text(description: str) -> Schema:
    return {"type": "string", "description": description}


def _word(description: str) -> Schema:
    return {"type": "string", "minLength": 1, "description": description}


def _flag(description: str) -> Schema:
    return {"type": "boolean", "description": description}


def _reference(name: str, description: str) -> Schema:
    return {"description": description, "allOf": [{"$ref": f"#/definitions/{name}"}]}


def _seconds(description: str, *, above_zero: bool) -> Schema:
    bound = {"exclusiveMinimum": 0} if above_zero else {"minimum": 0}
    return {"type": "number", **bound, "maximum": _YEAR_S, "description": description}


def _object(properties: Mapping[str, Schema], **rest: Any) -> Schema:
    """Return the schema of an object whose fields may be null, which means absent."""
    optional = {
        name: each if name in rest.get("required", ()) else _optional(each)
        for name, each in properties.items()
    }
    return {"type": "object", "properties": optional, "additionalProperties": False, **rest}


def _optional(schema: Schema) -> Schema:
    """Return the schema with null allowed."""
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    if not schema.keys() & {"allOf", "anyOf"}:
        return schema
    alternatives = schema.get("anyOf") or schema["allOf"]
    rest = {key: each for key, each in schema.items() if key not in {"anyOf", "allOf"}}
    return {**rest, "anyOf": [*alternatives, {"type": "null"}]}


def _annotations() -> dict[str, Schema]:
    return {
        "metadata": {"description": "Data for other tools."},
        "notes": {"description": "Notes for people."},
    }


def _settings() -> Schema:
    return _object(
        {
            "timeout": _seconds("Seconds after which an execution fails. Default: none.", above_zero=True),
            "join_timeout": _seconds("Default timeout of joins in seconds; 0: none.", above_zero=False)
            | {"default": 300},
            "max_parallel": {
                "type": "integer",
                "minimum": 1,
                "maximum": 1_000_000,
                "description": "Nodes of one execution that run at the same time.",
            },
            "priority": {
                "type": "integer",
                "minimum": 0,
                "maximum": 10,
                "default": 5,
                "description": "0 to 3 low, 4 to 6 normal, 7 to 10 high.",
            },
            "executor": {"enum": ["rune", "legacy"], "description": "Which engine runs the nodes."},
            "on_failure": _handler(
                "The workflow to start when an execution fails; `none`: none.",
                statuses={
                    "type": "array",
                    "items": {"enum": ["failed", "halted", "cancelled", "failed_items"]},
                },
            ),
            "expect_within": _seconds(
                "Seconds after which an open execution is late, pauses included. Default: never.",
                above_zero=True,
            ),
            "on_late": _handler("The workflow to start when an execution is late; `none`: none."),
            "expect_every": {
                "type": "number",
                "minimum": 1,
                "maximum": 366 * 24 * 3600,
                "description": "Seconds within which an execution of the deployed workflow has to complete, again and "
                "again. Default: none has to.",
            },
            "on_missing": _handler(
                "The workflow to start when no execution completed for `expect_every` seconds, or a schedule could not "
                "start one; `none`: none."
            ),
            "callable_by": {
                "type": "array",
                "items": {"type": "string", "pattern": "^[A-Za-z0-9_*-]+$", "maxLength": 128},
                "description": "Workflows that may start this one as a child although it is outside of the scope of "
                "the key that deployed them. `*` stands for any characters.",
            },
        }
    )


def _handler(description: str, **fields: Schema) -> Schema:
    written = _object(
        {
            "workflow": {"allOf": [{"$ref": "#/definitions/id"}]},
            "version": {"type": ["integer", "string"]},
            **fields,
        },
        required=["workflow"],
    )
    return {"description": description, "anyOf": [{"allOf": [{"$ref": "#/definitions/id"}]}, written]}


def _retry() -> Schema:
    return _object(
        {
            "max_attempts": {
                "type": "integer",
                "minimum": 1,
                "maximum": 1000,
                "default": 1,
                "description": "Attempts in all.",
            },
            "initial_delay": _seconds("Seconds before the second attempt.", above_zero=False)
            | {"default": 1},
            "backoff": {
                "type": "number",
                "minimum": 1,
                "maximum": 100,
                "default": 2,
                "description": "Factor by which the delay grows.",
            },
            "max_delay": _seconds("Longest delay in seconds.", above_zero=False) | {"default": 300},
            "jitter": _flag("Whether delays vary.") | {"default": True},
            "on": {
                "type": "array",
                "items": {"type": "string", "minLength": 1},
                "description": "Error codes to retry. Default: every transient one.",
            },
        }
    )


def _error_policy() -> Schema:
    kinds = ["halt", "ignore", "branch"]
    written = _object(
        {"type": {"enum": kinds}, "error_edge": _word("The edge to follow with `branch`.")}, required=["type"]
    )
    return {"anyOf": [{"enum": kinds}, written]}


def _credentials() -> Schema:
    written = _object(
        {
            "id": _word("Id of the credential."),
            "name": _word("Name of the credential."),
            "type": _word("Type of the credential."),
        },
        anyOf=[{"required": ["name"]}, {"required": ["id"]}],
    )
    return {"anyOf": [{"type": "string", "minLength": 1}, written]}


def _edge() -> Schema:
    return _object(
        {
            "id": _reference("id", "Default: made from source and target."),
            "src": _word("Id of the node that the edge leaves."),
            "dst": _word("Id of the node that the edge enters."),
            "label": {"type": ["string", "boolean", "null"], "description": "The outlet of the source."},
            "is_error": {"enum": [True, False, "error"], "description": "Followed when the source fails."},
        },
        required=["src", "dst"],
    )


def _node(catalogue: Catalogue, types: Mapping[str, NodeType]) -> Schema:
    known = {"enum": sorted(catalogue)}
    common = {
        "id": _reference("id", "The node's id; its output is `$id` in expressions."),
        "type": {**known, "description": "The node type."},
        "handler": {**known, "description": "Synonym of `type`."},
        "name": _text("The name that people see."),
        "parameters": {"type": "object", "description": "The parameters of the node type."},
        "config": {"type": "object", "description": "Synonym of `parameters`."},
        "dependencies": {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "description": "Ids of the nodes before this one, instead of edges.",
        },
        "credentials": _reference("credentials", "The stored credential to use; never its values."),
        "retry": _reference("retry", "When failed attempts are repeated."),
        "timeout": _seconds("Seconds that one attempt may take.", above_zero=True),
        "join": {
            "enum": ["all", "any"],
            "description": "Whether a node with several in-edges waits for all of them or for the first.",
        },
        "error": _reference("error", "What happens after the last attempt failed."),
        "queue": _reference("id", "The queue of the workers that run this node."),
        "at_most_once": _flag("Fail instead of running again when the outcome of a run is unknown."),
        "idempotency_key": _flag("Whether requests carry the idempotency key."),
        "trigger": _flag("Pass the start payload on instead of running."),
        "pin": _object(
            {
                "output": {"description": "The output; of a split, the list of its items."},
                "outlet": _word("The outlet, if the node type has outlets."),
            },
            description="An output that is given instead of calling the node. Deployed workflows have none.",
        ),
        "output": {"description": "Kept with the document, not used."},
        "position": {"description": "Where an editor shows the node."},
        **_annotations(),
    }
    return _object(
        common,
        required=["id"],
        anyOf=[{"required": ["type"]}, {"required": ["handler"]}],
        allOf=[_of_type(each) for each in types.values()],
    )


def _of_type(each: NodeType) -> Schema:
    """Return the rule that applies the parameters of one node type."""
    names = {"enum": [each.name, *each.aliases]}
    parameters = {"$ref": f"#/definitions/parameters.{each.name}"}
    then: Schema = {
        "properties": {name: _optional({"allOf": [parameters]}) for name in ("parameters", "config")},
    }
    if each.schema.get("required"):
        then["anyOf"] = [{"required": ["parameters"]}, {"required": ["config"]}]
    return {
        "if": {"anyOf": [{"properties": {name: names}, "required": [name]} for name in ("type", "handler")]},
        "then": then,
    }


def _parameters(each: NodeType) -> Schema:
    schema = dict(each.schema)
    if "properties" not in schema:
        return {"type": "object", **schema}
    schema["properties"] = {
        name: _parameter(part, each.kinds.get(name, "template"), lax=each.lax)
        for name, part in schema["properties"].items()
    }
    return {"description": each.doc or each.summary, **schema}


def _parameter(schema: Schema, kind: str, *, lax: bool) -> Schema:
    if kind in {"literal", "expression"}:
        return _widened(schema, dynamic=False, lax=lax)
    widened = _widened(schema, dynamic=True, lax=lax)
    if kind != "element":
        return widened
    # The text of such a parameter is one expression, whatever it contains; only what is inside a list is a template.
    parts = [part for part in widened.get("anyOf", ()) if part != _EXPRESSION]
    return {**widened, "anyOf": parts} if parts else widened


def _widened(schema: Schema, *, dynamic: bool, lax: bool) -> Schema:
    """Allow an expression in place of each value, and numbers and booleans as text where the type accepts them."""
    if not schema.keys() & {"type", "enum", "const", "anyOf"}:
        return schema
    described: Schema = {key: schema[key] for key in ("description", "default", "title") if key in schema}
    inner = {key: each for key, each in schema.items() if key not in described}
    if "anyOf" in inner:
        nested = [_widened(each, dynamic=dynamic, lax=lax) for each in inner["anyOf"]]
        parts = [part for each in nested for part in (each["anyOf"] if set(each) == {"anyOf"} else [each])]
        unique = [part for at, part in enumerate(parts) if part not in parts[:at]]
        return {**described, "anyOf": unique}
    parts = [_contents(inner, dynamic=dynamic, lax=lax)]
    if lax and inner.get("type") in {"number", "integer", "boolean", "null"}:
        parts.append(_NUMBER_TEXT)
    if dynamic and not (inner.get("type") == "string" and len(inner) == 1):
        parts.append(_EXPRESSION)
    return {**described, **parts[0]} if len(parts) == 1 else {**described, "anyOf": parts}


def _contents(schema: Schema, *, dynamic: bool, lax: bool) -> Schema:
    """Widen what a list or an object contains."""
    found = dict(schema)
    for key in _CONTAINER_KEYS:
        if isinstance(found.get(key), dict):
            found[key] = _widened(found[key], dynamic=dynamic, lax=lax)
    if isinstance(found.get("properties"), dict):
        found["properties"] = {
            name: _widened(each, dynamic=dynamic, lax=lax) for name, each in found["properties"].items()
        }
    return found
