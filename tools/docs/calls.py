"""Examples of the operations of the API: a request with curl, and the call of the Python client that sends the same.

The method of an operation is found by calling all methods of the client with a transport that records the request and
sends nothing. Path parameters are variables of the shell and of Python with the same name.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import httpx

from rune.client import Client, models

VARIANTS: Mapping[str, tuple[dict[str, Any], ...]] = {
    "deploy": ({}, {"workflow": "given"}),
    "enable_trigger": ({}, {"enabled": False}),
    "workflow": ({}, {"version": "given"}),
    "source": ({"version": "given"},),
    "download": ({"what": "input"},),
    "value_part": ({"node": "given", "of": "output"}, {"node": "given", "of": "input"}),
}
"""Optional arguments with which a method sends another operation; `given` stands for a path parameter."""

PREFERRED = {"get_execution": "execution", "list_executions": "executions"}
"""The method of an operation that several methods send, if it is not the one with the shortest name."""

ELSEWHERE = {"start_execution": 'client.start("hello", {"name": "World"})'}
"""Calls of the client that send another operation to the same effect."""

FIELDS = {"whom": "grant"}
"""Arguments whose field of the body has another name."""

QUERY: Mapping[str, Any] = {"before": 1}
"""Values of query parameters that a request needs."""


class Trial(NamedTuple):
    """A method with arguments, and the request that it sends."""

    method: str
    given: dict[str, Any]
    request: httpx.Request


class _SentError(Exception):
    def __init__(self, request: httpx.Request) -> None:
        self.request = request


def curl(method: str, path: str, queries: Mapping[str, Any], body: Any = None) -> str:
    """Return a request as a command of a shell."""
    place = re.sub(r"\{(\w+)\}", r"$\1", path)
    query = "&".join(f"{name}={value}" for name, value in queries.items())
    url = f"$RUNE_URL{place}"
    words = ["curl", *([] if method == "get" else ["-X", method.upper()])]
    words.append(f'"{url}?{query}"' if query else url)
    if body is None:
        return " ".join(words)
    data = shlex.quote(json.dumps(body, ensure_ascii=False))
    return f"{' '.join(words)} -H 'Content-Type: application/json' \\\n  -d {data}"


def python(operation: str, method: str, path: str, body: Any = None) -> str:
    """Return the call of the client that sends the request; raise LookupError if none does."""
    if operation in ELSEWHERE:
        return ELSEWHERE[operation]
    pattern = re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path) + "$")
    found = [
        (trial, match)
        for trial in _trials()
        if trial.request.method == method.upper() and (match := pattern.fullmatch(trial.request.url.path))
    ]
    preferred = PREFERRED.get(operation)
    for trial, match in sorted(found, key=lambda each: (each[0].method != preferred, len(each[0].method))):
        names = {value: name for name, value in match.groupdict().items()}
        arguments = _arguments(trial, names, body)
        if arguments is not None and _sends(trial.method, arguments, body):
            return _shown(trial.method, arguments)
    raise LookupError(f"no method of the client sends {method.upper()} {path} with {body}")


class Variable(str):
    """An argument that is a path parameter; in the documentation a variable with its name."""


@functools.cache
def _trials() -> tuple[Trial, ...]:
    names = [name for name, _ in inspect.getmembers(Client, inspect.isfunction) if not name.startswith("_")]
    found = []
    for name in names:
        if name == "close":
            continue
        for variant in VARIANTS.get(name, ({},)):
            given = {**_required(name), **variant}
            request = _request(name, given)
            if request is not None:
                found.append(Trial(name, given, request))
    return tuple(found)


def _required(name: str) -> dict[str, Any]:
    """Return the arguments without which a method cannot be called, each with another value."""
    parameters = list(inspect.signature(getattr(Client, name)).parameters.values())[1:]
    needed = [each for each in parameters if each.default is inspect.Parameter.empty]
    return {
        each.name: _stand_in(str(each.annotation), number)
        for number, each in enumerate(needed)
        if each.kind is not inspect.Parameter.VAR_KEYWORD
    }


def _stand_in(annotation: str, number: int) -> Any:
    if annotation.startswith("models.Limits"):
        return models.Limits()
    if annotation.startswith("dict"):
        return {}
    if annotation.startswith(("Sequence", "list")):
        return []
    return 7_000 + number if annotation.startswith("int") else f"given{number}"


def _request(name: str, given: Mapping[str, Any]) -> httpx.Request | None:
    """Return the first request that a method sends; None if it sends none."""

    def record(request: httpx.Request) -> httpx.Response:
        raise _SentError(request)

    with Client("http://localhost", transport=httpx.MockTransport(record)) as client:
        try:
            result = getattr(client, name)(**given)
            if isinstance(result, Iterator):
                next(result)
        except _SentError as sent:
            return sent.request
    return None


def _arguments(trial: Trial, names: Mapping[str, str], body: Any) -> dict[str, Any] | None:
    """Return the arguments with which the method sends the body, or None."""
    fields = body if isinstance(body, dict) else {}
    arguments: dict[str, Any] = {}
    for name, parameter in list(inspect.signature(getattr(Client, trial.method)).parameters.items())[1:]:
        value = trial.given.get(name)
        field = FIELDS.get(name, name)
        if value is not None and str(value) in names:
            arguments[name] = Variable(names[str(value)])
        elif str(parameter.annotation).startswith("models.Limits") and (
            name in trial.given or field in fields
        ):
            arguments[name] = models.Limits(**fields.get(field, fields))
        elif field in fields:
            arguments[name] = fields[field]
        elif parameter.default is inspect.Parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
            arguments[name] = QUERY.get(name, body)
        elif name in trial.given:
            arguments[name] = value
        elif parameter.kind is parameter.VAR_KEYWORD:
            known = arguments.keys()
            arguments |= {each: given for each, given in fields.items() if each not in known}
    return arguments


def _sends(method: str, arguments: Mapping[str, Any], body: Any) -> bool:
    """Whether a method sends all fields of a body."""
    if any(value is None for value in arguments.values()):
        return False
    request = _request(method, arguments)
    if request is None or body is None:
        return request is not None
    sent = json.loads(request.content)
    return all(_contains(sent.get(name), value) for name, value in body.items())


def _contains(sent: Any, value: Any) -> bool:
    if isinstance(value, dict) and isinstance(sent, dict):
        return all(_contains(sent.get(name), each) for name, each in value.items())
    return bool(sent == value)


def _shown(method: str, arguments: Mapping[str, Any]) -> str:
    parameters = inspect.signature(getattr(Client, method)).parameters
    words = []
    for name, value in arguments.items():
        positional = name in parameters and parameters[name].default is inspect.Parameter.empty
        positional = positional and parameters[name].kind is not inspect.Parameter.VAR_KEYWORD
        words.append(_literal(value) if positional else f"{name}={_literal(value)}")
    call = f"client.{method}({', '.join(words)})"
    returned = str(inspect.signature(getattr(Client, method)).return_annotation)
    if method == "changes":
        return f"next({call})"
    return f"list({call})" if returned.startswith("Iterator") else call


def _literal(value: Any) -> str:
    if isinstance(value, Variable):
        return str(value)
    if isinstance(value, models.Limits):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        return f"Limits({', '.join(f'{name}={_literal(each)}' for name, each in fields.items() if each)})"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(key)}: {_literal(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_literal(each) for each in value) + "]"
    return repr(value)
