"""`llm_service`: a chat completion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from rune.core.problem import Problem
from rune.nodes.declare import Model, declare
from rune.nodes.rules import either


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


def _combined(parameters: Mapping[str, Any]) -> list[Problem]:
    return either(parameters, "prompt", "messages", required=True)


TYPE = declare(
    "llm_service",
    Parameters,
    kinds={"json_schema": "literal"},
    extra=_combined,
    summary="Asks a language model.",
    doc="Sends a conversation to any OpenAI-compatible endpoint.",
    output="`{text, json, usage}`.",
    errors={
        "LLM_TIMEOUT": "no complete answer in time",
        "LLM_CONNECT": "no connection",
        "LLM_STATUS": "the endpoint refuses the request",
        "LLM_RATE_LIMITED": "the endpoint asks to slow down",
        "LLM_INVALID_JSON": "the answer does not fit `json_schema`",
        "HTTP_BLOCKED": "the address is not allowed",
        "EXPRESSION_ERROR": "a parameter cannot be evaluated",
    },
    credentials=True,
    effectful=lambda parameters: True,
)
