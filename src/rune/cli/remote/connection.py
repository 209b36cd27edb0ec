"""The server named by RUNE_URL: its client, its errors and the API key.

Errors of the API are raised as the local services would raise them.

RUNE_API_KEY belongs to the server of RUNE_URL. It is never sent to a server that `rune.toml` of the current folder
names, because that file may come with a checkout from anywhere. Keys of such servers are in a file of the user.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from rune.client import ApiError, AsyncClient
from rune.client.transport import ServerKeyError, require_encryption
from rune.codec.decode import MalformedDataError
from rune.errors import InvalidDocumentError, RuneError
from rune.ports.journal import StoreUnavailableError
from rune.settings import Settings

UNAVAILABLE = 503
"""The HTTP status of a server whose stores do not respond."""

KEYS_FILE = Path("rune", "keys.toml")
"""In the configuration folder of the user: `"https://host:port" = "key"`, one line for each server."""

DEFAULT_PORTS = {"http": 80, "https": 443}


def key_for_server(settings: Settings, environment: Mapping[str, str] | None = None) -> str | None:
    """Return the key to send to the server of the settings; None: no key.

    ServerKeyError if a key exists that must not be sent there.
    """
    given = os.environ if environment is None else environment
    if settings.api_key and not settings.url_in_file:
        require_encryption(settings.url, "RUNE_API_KEY")
        return settings.api_key
    file = keys_file(given)
    key = _read_keys(file).get(origin(settings.url))
    if key is not None:
        require_encryption(settings.url, str(file))
        return key
    if settings.api_key:
        raise ServerKeyError(
            f"rune.toml of this folder names the server {settings.url}, and RUNE_API_KEY is sent only to the server of"
            f" RUNE_URL: set RUNE_URL={settings.url}, or add the server with its key to {file}, or unset RUNE_API_KEY"
        )
    return None


def keys_file(environment: Mapping[str, str]) -> Path:
    """Return the path of the user's file with keys."""
    folder = environment.get("XDG_CONFIG_HOME")
    return (
        Path(folder) if folder else Path(environment.get("HOME", "~")).expanduser() / ".config"
    ) / KEYS_FILE


def origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or DEFAULT_PORTS.get(parts.scheme)


def _read_keys(file: Path) -> dict[tuple[str, str, int | None], str]:
    """Read the file of the user. Errors never quote its content."""
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            if mode & 0o077:
                raise ServerKeyError(
                    f"{file} can be read by other users (mode {mode & 0o777:04o}): chmod 600 it"
                )
            values = tomllib.load(opened)
        if not all(isinstance(key, str) for key in values.values()):
            raise ValueError
        return {origin(url): key for url, key in values.items()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ServerKeyError(f"{file}: {(error.strerror or str(error)).lower()}") from None
    except ValueError:
        raise ServerKeyError(f'{file} is not a list of keys: a line is "https://host:port" = "key"') from None


@asynccontextmanager
async def client(settings: Settings) -> AsyncIterator[AsyncClient]:
    """Open a client of the server named by RUNE_URL."""
    async with AsyncClient(settings.url, key=key_for_server(settings)) as opened:
        with raise_local_errors(settings.url):
            yield opened


@contextmanager
def raise_local_errors(url: str) -> Iterator[None]:
    """Raise errors of the API as the local services would raise them."""
    try:
        yield
    except ApiError as refused:
        if refused.problems:
            raise InvalidDocumentError(refused.problems) from None
        if refused.code == "UNAUTHORIZED":
            raise RuneError(
                f"{url} requires an API key, and RUNE_API_KEY does not contain a valid one: an administrator of the "
                "server creates one with `rune keys create`",
                code="UNAUTHORIZED",
            ) from None
        if refused.code == "HTTP_STATUS":
            raise RuneError(
                f"{url} does not respond like a Rune server: status {refused.status}", code="UNREACHABLE"
            ) from None
        if refused.status == UNAVAILABLE:
            raise StoreUnavailableError(refused.message, code=refused.code) from None
        raise
    except (msgspec.DecodeError, MalformedDataError) as error:
        raise RuneError(f"{url} does not respond like a Rune server: {error}", code="UNREACHABLE") from None


def epoch(moment: str) -> int:
    """Convert ISO 8601 text to epoch ms."""
    return round(datetime.fromisoformat(moment).timestamp() * 1000)


class RemoteService:
    """One service of a server, with the methods that the API has."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
