"""Every knob: name, unit, default, meaning. Read once, from the environment and `rune.toml`, and passed down."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from rune.errors import RuneError
from rune.ports.retention import BadRule, Rule
from rune.ports.ruletext import parse_rules

LISTS = frozenset({"nodes", "http_allow"})
"""What is several values, separated by commas in the environment."""

SECRET = frozenset({"secret_key", "smtp_url"})
"""What holds a key or a password."""


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
    http_per_host: int = 64  # calls to one host that may be under way at once
    smtp_url: str = ""  # `smtps://host`: where nodes without credentials hand their mails
    secret_key: str = ""  # keys of the credentials in base64, separated by commas: the first seals, all open
    secret_key_file: str = ""  # or a file that holds them, one a line; empty: `secret.key` in the home folder
    retention: tuple[Rule, ...] = ()  # what is removed by itself, once an hour; nothing unless given

    def __repr__(self) -> str:
        """Settings are shown without what is secret in them."""
        shown = {name: getattr(self, name) for name in self.__struct_fields__ if name not in SECRET}
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def key_file(self) -> Path:
        """The file with the keys of the credentials."""
        return Path(self.secret_key_file) if self.secret_key_file else Path(self.home) / "secret.key"

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
    if "secret_key" in values:
        raise BadSettings(
            "rune.toml: a key does not belong there; set RUNE_SECRET_KEY or RUNE_SECRET_KEY_FILE"
        )
    for field in msgspec.structs.fields(Settings):
        text = given.get(f"RUNE_{field.name.upper()}")
        if text is not None:
            values[field.name] = text.split(",") if field.name in LISTS else text
    try:
        values["retention"] = parse_rules(values.get("retention", []))
    except BadRule as error:
        raise BadSettings(f"retention: {error.message}") from None
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
