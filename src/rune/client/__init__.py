"""The Python client: what programs talk to a Rune server with."""

from rune.client.blocking import Client
from rune.client.refusal import ClientError, Refusal, Unreachable
from rune.client.waiting import AsyncClient

__all__ = ["AsyncClient", "Client", "ClientError", "Refusal", "Unreachable"]
