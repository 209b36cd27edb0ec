"""The Python client: what programs talk to a Rune server with."""

from rune.client.async_client import AsyncClient
from rune.client.client import Client
from rune.client.errors import ClientError, Refusal, Unreachable

__all__ = ["AsyncClient", "Client", "ClientError", "Refusal", "Unreachable"]
