"""The Python client for a Rune server."""

from rune.client.async_client import AsyncClient, AsyncRun
from rune.client.client import Client, Run
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
