"""Every knob: name, unit, default, meaning. Read once, from the environment and `rune.toml`, and passed down."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from rune.errors import RuneError

LISTS = frozenset({"nodes", "http_allow"})
"""What is several values, separated by commas in the environment."""


class BadSettings(RuneError):
    """A setting that does not fit."""

    code = "BAD_SETTINGS"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The configuration of one process. `RUNE_<NAME>` in the environment beats `rune.toml`."""

    home: str = ".rune"
    journal: str = ""  # `sqlite:///path`; empty: `rune.db` in the home folder
    state: str = "embedded"
    queue: str = "embedded"
    blob: str = "embedded"
    durability: Literal["full", "relaxed"] = (
        "full"  # relaxed: a power cut may lose the last moments, a crash does not
    )
    in_place: bool = True
    slots: int = 256  # nodes that may be under way at once
    grace: float = 30.0  # seconds that running nodes get at a stop
    nodes: tuple[str, ...] = ()  # modules with custom nodes
    http_policy: Literal["public_only", "allow", "open"] = "public_only"  # whom nodes may call
    http_allow: tuple[str, ...] = ()  # hosts, `*.domain`s and networks that may be called in any case
    smtp_url: str = ""  # `smtps://host`: where nodes without credentials hand their mails

    @property
    def database(self) -> Path:
        """The file of the embedded backend."""
        if not self.journal:
            return Path(self.home) / "rune.db"
        if not self.journal.startswith("sqlite:///"):
            raise BadSettings(
                f"RUNE_JOURNAL: `{self.journal}` is no address this version knows; use `sqlite:///path`"
            )
        return Path(self.journal.removeprefix("sqlite:///"))


def load_settings(environment: Mapping[str, str] | None = None, folder: Path | None = None) -> Settings:
    """Read the configuration once."""
    given = os.environ if environment is None else environment
    values: dict[str, Any] = _from_file((folder or Path()) / "rune.toml")
    for field in msgspec.structs.fields(Settings):
        text = given.get(f"RUNE_{field.name.upper()}")
        if text is not None:
            values[field.name] = text.split(",") if field.name in LISTS else text
    try:
        settings = msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise BadSettings(f"configuration: {error}") from error
    for name in ("state", "queue", "blob"):
        if getattr(settings, name) != "embedded":
            raise BadSettings(f"RUNE_{name.upper()}: this version knows only `embedded`")
    return settings


def _from_file(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        return tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise BadSettings(f"{path}: {error}") from error
