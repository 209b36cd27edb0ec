"""The Python client for a Rune server."""

from rune.client.async_client import AsyncClient
from rune.client.async_runs import AsyncRun
from rune.client.client import Client
from rune.client.errors import (
    ApiError,
    ClientError,
    Conflict,
    ConnectionFailedError,
    ExecutionFailed,
    Forbidden,
    Invalid,
    NotFound,
    RateLimited,
    Refusal,
    Unreachable,
)
from rune.client.runs import Run

__all__ = [
    "ApiError",
    "AsyncClient",
    "AsyncRun",
    "Client",
    "ClientError",
    "Conflict",
    "ConnectionFailedError",
    "ExecutionFailed",
    "Forbidden",
    "Invalid",
    "NotFound",
    "RateLimited",
    "Refusal",
    "Run",
    "Unreachable",
]
