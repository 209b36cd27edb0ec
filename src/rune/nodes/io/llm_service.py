"""`llm_service`: a chat completion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from rune.core.outcome import Outcome, Output
from rune.core.problem import Problem
from rune.nodes.base import Call
from rune.nodes.declare import Model, declare
from rune.nodes.rules import either
from rune.nodes.usage import CREDENTIAL_ERRORS


class Message(Model, kw_only=True, frozen=True):
    """One turn."""

    role: Annotated[str, Meta(min_length=1, description="`system`, `user` or `assistant`.")]
    content: Annotated[Any, Meta(description="What is said.")]


class Parameters(Model, kw_only=True, frozen=True):
    """The request to the model."""

    base_url: Annotated[
        str | None, Meta(description="Address of an OpenAI-compatible endpoint. Default: the credential's.")
    ] = None
    model: Annotated[str, Meta(min_length=1, description="Name of the model.")]
    prompt: Annotated[str | None, Meta(description="What the user says.")] = None
    messages: Annotated[
        Annotated[list[Message], Meta(min_length=1)] | None,
        Meta(description="A whole conversation, instead of `prompt`."),
    ] = None
    system: Annotated[str | None, Meta(description="Instruction before the conversation.")] = None
    temperature: Annotated[
        Annotated[float, Meta(ge=0, le=2)] | None,
        Meta(description="How freely it answers. Default: the endpoint's."),
    ] = None
    max_tokens: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="Longest answer. Default: the endpoint's.")
    ] = None
    json_schema: Annotated[
        dict[str, Any] | None,
        Meta(description="The answer is asked for, and checked, as JSON of this schema."),
    ] = None
    stream: Annotated[
        bool, Meta(description="Have the answer sent piece by piece, so that whoever looks on sees it grow.")
    ] = True
    timeout: Annotated[float, Meta(gt=0, description="Seconds for the whole answer.")] = 120


_STANDS_ALONE = "`json_schema` is a JSON Schema (draft 2020-12) that stands alone"


def _combined(parameters: Mapping[str, Any]) -> list[Problem]:
    problems = either(parameters, "prompt", "messages", required=True)
    if isinstance(parameters.get("json_schema"), dict):
        from rune.inputschema import check_schema  # noqa: PLC0415 - slow to import, and few nodes need it

        problems += [
            replace(each, path=each.path.replace("inputs", "json_schema", 1), hint=_STANDS_ALONE)
            for each in check_schema(parameters["json_schema"])
        ]
    return problems


TYPE = declare(
    "llm_service",
    Parameters,
    kinds={"json_schema": "literal"},
    extra=_combined,
    summary="Asks a language model.",
    doc="Sends a conversation to `{base_url}/chat/completions` of any OpenAI-compatible endpoint and waits for the "
    "answer. Private addresses are blocked unless allowed. An endpoint that asks for patience is given it by the "
    "node's `retry`.",
    output="`{text, json, usage, finish_reason}`; `json` is null without `json_schema`.",
    errors={
        "LLM_TIMEOUT": "no complete answer in time",
        "LLM_CONNECT": "no connection",
        "LLM_STATUS": "the endpoint refuses the request",
        "LLM_RATE_LIMITED": "the endpoint asks to slow down",
        "LLM_INVALID_JSON": "the answer does not fit `json_schema`",
        "LLM_PROTOCOL": "the answer breaks off, or is not one that such an endpoint gives",
        "LLM_TOO_LARGE": "the answer has more than 16 MiB, or 4 million characters",
        "HTTP_BLOCKED": "the address is not allowed",
        **CREDENTIAL_ERRORS,
        "EXPRESSION_ERROR": "a parameter cannot be evaluated",
    },
    credentials=True,
    effectful=lambda parameters: True,
)


async def run(call: Call[Parameters]) -> Outcome:
    """One conversation, through the connections that all calls of the process share."""
    from rune.nodes.io.chat import chat  # noqa: PLC0415 - who calls nobody should not wait for it

    return Output(await chat(call))
