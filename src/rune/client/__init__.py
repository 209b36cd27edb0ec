"""The Python client for a Rune server."""

from rune.client.async_client import AsyncClient
from rune.client.client import Client
from rune.client.errors import ApiError, ClientError, ConnectionFailedError, Refusal, Unreachable

__all__ = [
    "ApiError",
    "AsyncClient",
    "Client",
    "ClientError",
    "ConnectionFailedError",
    "Refusal",
    "Unreachable",
]
