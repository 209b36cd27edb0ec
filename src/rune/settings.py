"""Every knob: name, unit, default, meaning. Read once, from the environment and `rune.toml`, and passed down."""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin
from urllib.parse import urlsplit

import msgspec

from rune.errors import RuneError
from rune.ports.retention import InvalidRuleError, Rule, parse_rules

LISTS = frozenset({"nodes", "http_allow", "queues"})
"""What is several values, separated by commas in the environment."""

SECRET = frozenset({"secret_key", "api_key", "smtp_url", "journal", "state", "queue"})
"""What holds a key or a password."""


POSTGRES = ("postgresql://", "postgres://")
REDIS = ("redis://", "rediss://", "unix://")
AMQP = ("amqp://", "amqps://")

STATUSES = {"true": "each", "1": "each", "false": "none", "0": "none"}
"""Other ways to say how steps are told."""


class SettingsError(RuneError):
    """A setting that does not fit."""

    code = "BAD_SETTINGS"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The configuration of one process. `RUNE_<NAME>` in the environment beats `rune.toml`."""

    home: str = ".rune"
    journal: str = ""  # `sqlite:///path` or `postgresql://…`; empty: `rune.db` in the home folder
    state: str = "embedded"  # or `redis://…`
    queue: str = "embedded"  # or `redis://…`, `amqp://…`
    blob: str = "embedded"  # in the journal's store; or `file:///folder`, `s3://bucket/prefix`
    queues: tuple[str, ...] = ("default",)  # of a cluster: the queues whose nodes a worker runs
    prefix: str = "rune"  # of a cluster: what the names of everything in Redis begin with
    queue_kind: Literal["classic", "quorum"] = "classic"  # of a cluster with RabbitMQ
    queue_prefix: str = "workflow"  # of a cluster with RabbitMQ: what the names of queues begin with
    statuses: Literal["each", "batched", "none"] = "each"  # of a cluster with RabbitMQ: how steps are told
    legacy_consume: bool = False  # of a cluster with RabbitMQ: whether `workflow.started` is read here
    wire_inline: bool = False  # of a cluster with RabbitMQ: messages bring definition and outputs along
    wire_bytes: int = 16 * 1024 * 1024  # the most that such a message may have
    partitions: int = 16  # of a cluster: fixed with its first start
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
    url: str = ""  # of a server that commands ask instead of opening anything themselves
    api_key: str = ""  # what servers ask for, and what those who ask them send
    health_port: int = 0  # where workers and schedulers say how they are; 0: nowhere
    health_host: str = "127.0.0.1"
    log: Literal["text", "json"] = "text"  # how servers write their log
    log_level: Literal["", "debug", "info", "warning", "error"] = ""  # empty: info, of `rune up` warning
    traces: str = ""  # where spans go (OTLP over HTTP); `off`: nowhere; empty: as OpenTelemetry is set
    trace_share: float = 1.0  # of the executions that come without a trace
    max_waiting: int = 100_000  # depth of a queue beyond which no execution is started; 0: whatever it is
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
    def collector(self) -> str:
        """Where spans are sent; empty: nowhere."""
        if self.traces in ("", "off"):
            return ""
        base = self.traces.rstrip("/")
        return base if base.endswith("/v1/traces") else f"{base}/v1/traces"

    @property
    def clustered(self) -> bool:
        """Whether several machines may take part."""
        return self.journal.startswith(POSTGRES)

    @property
    def brokered(self) -> bool:
        """Whether messages travel through RabbitMQ."""
        return self.queue.startswith(AMQP)

    @property
    def runs_with(self) -> str:
        """The command that brings somebody who runs executions."""
        return "rune serve worker" if self.clustered else "rune run"

    @property
    def database(self) -> Path:
        """The file of the embedded backend."""
        if not self.journal:
            return Path(self.home) / "rune.db"
        if not self.journal.startswith("sqlite:///"):
            raise SettingsError(
                "RUNE_JOURNAL: this is no address that Rune knows; use `sqlite:///path` or `postgresql://…`"
            )
        path = self.journal.removeprefix("sqlite:///")
        if not path:
            raise SettingsError("RUNE_JOURNAL: `sqlite:///` names no file; write `sqlite:///path`")
        return Path(path)


def load_settings(environment: Mapping[str, str] | None = None, folder: Path | None = None) -> Settings:
    """Read the configuration once."""
    given = os.environ if environment is None else environment
    values: dict[str, Any] = _from_file((folder or Path()) / "rune.toml")
    if "secret_key" in values:
        raise SettingsError(
            "rune.toml: a key does not belong there; set RUNE_SECRET_KEY or RUNE_SECRET_KEY_FILE"
        )
    if "api_key" in values:
        raise SettingsError("rune.toml: a key does not belong there; set RUNE_API_KEY")
    for field in msgspec.structs.fields(Settings):
        text = given.get(f"RUNE_{field.name.upper()}")
        if text is not None:
            values[field.name] = _several(text) if field.name in LISTS else text
    told = values.get("statuses", "each")
    values["statuses"] = STATUSES.get(str(told).lower(), told)
    if "traces" not in values:
        values["traces"] = given.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    try:
        values["retention"] = parse_rules(values.get("retention", []))
    except InvalidRuleError as error:
        raise SettingsError(f"retention: {error.message}") from None
    try:
        settings = msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError:
        raise _conflicts(values) from None
    _within_bounds(settings)
    _fit_together(settings)
    return settings


def _several(text: str) -> list[str]:
    """The values between the commas; an empty text holds none."""
    return [each.strip() for each in text.split(",")] if text.strip() else []


def _conflicts(values: dict[str, Any]) -> SettingsError:
    """What to say of the first setting that is unknown or of another type, by the name that it is set with."""
    known = {field.name: field.type for field in msgspec.structs.fields(Settings)}
    for name, value in values.items():
        if name not in known:
            return SettingsError(f"rune.toml: there is no setting `{name}`")
        try:
            msgspec.convert(value, known[name], strict=False)
        except msgspec.ValidationError:
            found = "this" if name in SECRET else f"`{value}`"
            expected = _expected(known[name])
            return SettingsError(f"RUNE_{name.upper()}, or `{name}` in rune.toml: {found} is not {expected}")
    return SettingsError("configuration: the settings do not fit together")


def _expected(kind: Any) -> str:
    """A type in words."""
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(f"`{each}`" for each in get_args(kind) if each)
    words = {int: "a whole number", float: "a number", bool: "`true` or `false`", str: "text"}
    return words.get(kind, "a list of texts")


def _within_bounds(settings: Settings) -> None:
    """Numbers with which nothing would ever run, or an address that leads nowhere."""
    for name in ("slots", "http_per_host", "partitions"):
        if getattr(settings, name) < 1:
            raise SettingsError(f"RUNE_{name.upper()}: at least 1")
    if settings.max_waiting < 0:
        raise SettingsError("RUNE_MAX_WAITING: a number of hints, or 0 for no limit")
    if not (math.isfinite(settings.grace) and settings.grace >= 0):
        raise SettingsError("RUNE_GRACE: a number of seconds, 0 or more")
    if settings.traces not in ("", "off") and not settings.traces.startswith(("http://", "https://")):
        raise SettingsError("RUNE_TRACES: `off`, or an address that begins with `http://` or `https://`")
    if not 0.0 <= settings.trace_share <= 1.0:
        raise SettingsError("RUNE_TRACE_SHARE: a share between 0 and 1")
    if not 0 <= settings.health_port < 65_536:
        raise SettingsError("RUNE_HEALTH_PORT: a port, or 0 for none")
    if settings.url and not _is_reachable(settings.url):
        raise SettingsError("RUNE_URL: the address of a server is `http://host:port` or `https://host:port`")


def _is_reachable(url: str) -> bool:
    """Whether an address has a scheme, a host, and no port that cannot be."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _readable(url: str) -> bool:
    """Whether an address has parts at all. PostgreSQL's may have several hosts, which have ports of their own."""
    try:
        parts = urlsplit(url)
        return url.startswith(POSTGRES) or parts.port is None or parts.port > 0
    except ValueError:
        return False


def _fit_together(settings: Settings) -> None:
    """A backend is embedded as a whole, or it is a cluster as a whole."""
    if not settings.clustered:
        for name in ("state", "queue", "blob"):
            if getattr(settings, name) != "embedded":
                raise SettingsError(
                    f"RUNE_{name.upper()}: with the embedded journal this can only be `embedded`;"
                    " a cluster needs RUNE_JOURNAL=postgresql://…"
                )
        return
    for name in ("journal", "state", "queue"):
        if not _readable(getattr(settings, name)):
            raise SettingsError(f"RUNE_{name.upper()}: this is no address: its host or port cannot be read")
    if not settings.state.startswith(REDIS):
        raise SettingsError("RUNE_STATE: with RUNE_JOURNAL=postgresql://… this must be `redis://…`")
    if not settings.queue.startswith((*REDIS, *AMQP)):
        raise SettingsError(
            "RUNE_QUEUE: with RUNE_JOURNAL=postgresql://… this must be `redis://…` or `amqp://…`"
        )
    if not settings.brokered and settings.queue != settings.state:
        raise SettingsError("RUNE_QUEUE: a queue in Redis must be in the same one as RUNE_STATE")
    if not settings.blob.startswith(("embedded", "file:///", "s3://")):
        raise SettingsError("RUNE_BLOB: this can be `embedded`, `file:///folder` or `s3://bucket/prefix`")
    if not 1 <= settings.wire_bytes <= 128 * 1024 * 1024:
        raise SettingsError("RUNE_WIRE_BYTES: between 1 and 134217728")
    if not settings.queues or not all(settings.queues):
        raise SettingsError("RUNE_QUEUES: at least one queue, separated by commas")


def _from_file(path: Path) -> dict[str, Any]:
    try:
        return _flat(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SettingsError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: byte {error.start} is not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: {error}") from error


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """`wire.inline` is another way to write `wire_inline`."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat.update(
            {f"{name}_{key}": each for key, each in value.items()}
            if isinstance(value, dict)
            else {name: value}
        )
    return flat
