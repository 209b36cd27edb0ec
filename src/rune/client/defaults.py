"""The server and the key of a client that is given none."""

from __future__ import annotations

import os

LOCAL_URL = "http://127.0.0.1:8080"


def default_server(url: str | None, key: str | None, *, local: bool) -> tuple[str, str | None]:
    """Return URL and key: those given, else those of RUNE_URL and RUNE_API_KEY.

    The key of the environment is used only for the server of the environment: it must not be sent to another one.
    `local`: the client calls an application in this process.
    """
    named = "" if local else os.environ.get("RUNE_URL", "")
    address = url or named or ("http://localhost" if local else LOCAL_URL)
    if key is None and address == named:
        key = os.environ.get("RUNE_API_KEY") or None
    return address, key
