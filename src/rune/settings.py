"""Settings of a process, loaded once from the environment and `rune.toml` and passed to its components."""

from __future__ import annotations

import ipaddress
import math
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin
from urllib.parse import urlsplit

import msgspec

from rune.errors import RuneError
from rune.ports.retention import InvalidRuleError, Rule, parse_rules

DERIVED = frozenset({"nodes_in_file", "url_in_file"})
"""Fields that `load_settings` computes; they cannot be set."""

LISTS = frozenset({"nodes", "http_allow", "queues", "quarantine", "trusted_proxies"})
"""Settings that hold several values, separated by commas in the environment."""

SECRET = frozenset({"secret_key", "api_key", "smtp_url", "journal", "state", "queue"})
"""Settings that hold or may contain a key or a password."""

POSTGRES = ("postgresql://", "postgres://")
REDIS = ("redis://", "rediss://", "unix://")
AMQP = ("amqp://", "amqps://")
PREFIX = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""Of keys in Redis. It is a part of patterns in access rules, where other characters have a meaning; a prefix with a
colon could contain the keys of another one."""

STATUS_SYNONYMS = {"true": "each", "1": "each", "false": "none", "0": "none"}
"""Synonyms of the values of `statuses`."""


DEFAULT_HOME = ".rune"


class SettingsError(RuneError):
    code = "BAD_SETTINGS"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The configuration of one process. `RUNE_<NAME>` in the environment takes precedence over `rune.toml`."""

    home: str = DEFAULT_HOME
    journal: str = ""  # `sqlite:///path` or `postgresql://…`; empty: `rune.db` in the home folder
    state: str = "embedded"  # or `redis://…`; with several hosts, separated by commas: a Redis Cluster
    queue: str = "embedded"  # or `redis://…`, `amqp://…`
    blob: str = "embedded"  # in the journal's store; or `file:///folder`, `s3://bucket/prefix`
    queues: tuple[str, ...] = ("default",)  # cluster: the queues whose nodes a worker runs
    prefix: str = "rune"  # cluster: prefix of every Redis key
    queue_kind: Literal["classic", "quorum"] = "classic"  # cluster with RabbitMQ
    queue_prefix: str = "workflow"  # cluster with RabbitMQ: prefix of queue names
    statuses: Literal["each", "batched", "none", "off"] = "each"  # cluster with RabbitMQ: status messages
    consume_statuses: bool = True  # cluster with RabbitMQ: API processes read statuses and completions
    legacy_consume: bool = False  # cluster with RabbitMQ: consume `workflow.started`
    wire_inline: bool = False  # cluster with RabbitMQ: messages carry definition and outputs
    wire_bytes: int = 16 * 1024 * 1024  # maximum size of such a message
    partitions: int | None = None  # cluster: fixed at its first start, then those of the store
    durability: Literal["full", "relaxed"] = "full"  # relaxed: a power cut may lose recent writes
    in_place: bool = True  # run pure successors in the same commit instead of sending them
    sticky: Literal["auto", "on", "off"] = "auto"  # keep an only successor in its worker
    chunk: int = 64  # pure items of a fan-out that run and commit together; 1: each alone
    slots: int = 256  # nodes that run concurrently in one process
    expression_ms: int = 5_000  # CPU time that the expressions of one node may take
    heartbeat: float = 5.0  # seconds between two heartbeats of a process of a cluster
    heartbeat_timeout: float = 15.0  # seconds without a heartbeat after which a process is no longer listed
    start_timeout: float = (
        60.0  # cluster: seconds that a server waits for its stores at its start; 0: it does not
    )
    grace: float = 30.0  # seconds that running nodes may take to finish at shutdown
    nodes: tuple[str, ...] = ()  # modules with custom nodes
    nodes_in_file: bool = False  # not a setting: whether the modules are from `rune.toml`
    public_url: str = ""  # where people open the web interface; handlers link to executions there
    quarantine: tuple[str, ...] = ()  # executions that a server pauses at its start
    run_example: bool = True  # `rune up`: start an example once, on a new database
    http_policy: Literal["public_only", "allow", "open"] = "public_only"  # hosts that nodes may call
    http_allow: tuple[str, ...] = ()  # hosts, `*.domain`s and networks that are always allowed
    http_per_host: int = 64  # concurrent calls to one host
    smtp_url: str = ""  # `smtps://host`: mail server of nodes without credentials
    secret_key: str = ""  # base64 keys of credentials, separated by commas: the first encrypts, all decrypt
    secret_key_file: str = ""  # a file with these keys, one per line; empty: `secret.key` in the home folder
    url: str = ""  # server that commands call instead of opening the stores
    url_in_file: bool = False  # not a setting: whether the URL is from `rune.toml`
    api_key: str = ""  # key that servers require and clients send
    api_connections: int = 4_096  # open connections of a server
    api_connections_per_address: int = 512  # of these, from one address
    api_head_bytes: int = 64 * 1024  # maximum size of a request head
    api_headers: int = 100  # maximum number of headers of a request
    api_url_bytes: int = 8 * 1024  # maximum length of a URL
    api_head_timeout: float = 10.0  # seconds in which a request head must arrive
    api_body_rate: int = 1024  # bytes per second at which a body must arrive; 0: any
    api_failed_logins: int = 10  # wrong keys of one address per minute before responses are delayed; 0: any
    trusted_proxies: tuple[str, ...] = ()  # addresses and networks whose `X-Forwarded-For` is believed
    api_streams: int = 5_000  # event streams of a server
    api_streams_per_key: int = 200  # of these, of one API key
    health_port: int = 0  # health endpoint of workers and schedulers; 0: none
    health_host: str = "127.0.0.1"
    log: Literal["text", "json"] = "text"  # log format of servers
    log_level: Literal["", "debug", "info", "warning", "error"] = ""  # empty: info, for `rune up` warning
    traces: str = ""  # OTLP endpoint (HTTP) for spans; `off`: none; empty: OTEL_EXPORTER_OTLP_ENDPOINT
    trace_share: float = 1.0  # share of executions without an incoming trace that are sampled
    max_dead: int = 100_000  # cluster with RabbitMQ: bound of the dead-letter queue; 0: none
    max_waiting: int = 100_000  # queue depth beyond which starts are rejected; 0: no limit
    retention: tuple[Rule, ...] = ()  # rules for hourly deletion; empty: nothing is deleted

    def __repr__(self) -> str:
        """Omit secrets, so that settings can be logged."""
        shown = {name: getattr(self, name) for name in self.__struct_fields__ if name not in SECRET}
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def key_file(self) -> Path:
        return Path(self.secret_key_file) if self.secret_key_file else Path(self.home) / "secret.key"

    @property
    def collector(self) -> str:
        """The URL that spans are sent to; empty: none."""
        if self.traces in ("", "off"):
            return ""
        base = self.traces.rstrip("/")
        return base if base.endswith("/v1/traces") else f"{base}/v1/traces"

    @property
    def clustered(self) -> bool:
        """Whether the backend is shared by several machines."""
        return self.journal.startswith(POSTGRES)

    @property
    def brokered(self) -> bool:
        """Whether messages are delivered by RabbitMQ."""
        return self.queue.startswith(AMQP)

    @property
    def keeps_successors(self) -> bool:
        """Whether a worker goes on with the only successor of a token instead of sending it."""
        return self.sticky == "on" or (self.sticky == "auto" and not self.brokered)

    @property
    def runs_with(self) -> str:
        """The command that runs executions, for hints in messages."""
        return "rune serve worker" if self.clustered else "rune run"

    @property
    def database(self) -> Path:
        """The SQLite file of the embedded backend."""
        if not self.journal:
            return Path(self.home) / "rune.db"
        if not self.journal.startswith("sqlite:///"):
            raise SettingsError("RUNE_JOURNAL: unsupported address; use `sqlite:///path` or `postgresql://…`")
        path = self.journal.removeprefix("sqlite:///")
        if not path:
            raise SettingsError("RUNE_JOURNAL: `sqlite:///` names no file; write `sqlite:///path`")
        return Path(path)

    @property
    def data_place(self) -> str:
        """Where the data is, for messages: the path of the SQLite file, or the cluster."""
        return "the cluster" if self.clustered else str(self.database)


def load_settings(environment: Mapping[str, str] | None = None, folder: Path | None = None) -> Settings:
    """Load and validate the settings."""
    given = os.environ if environment is None else environment
    values: dict[str, Any] = _load_file((folder or Path()) / "rune.toml")
    if "secret_key" in values:
        raise SettingsError(
            "rune.toml: a key must not be stored here; set RUNE_SECRET_KEY or RUNE_SECRET_KEY_FILE"
        )
    if "api_key" in values:
        raise SettingsError("rune.toml: a key must not be stored here; set RUNE_API_KEY")
    if derived := DERIVED & values.keys():
        raise SettingsError(f"rune.toml: unknown setting `{min(derived)}`")
    values["nodes_in_file"] = "nodes" in values and "RUNE_NODES" not in given
    values["url_in_file"] = "url" in values and "RUNE_URL" not in given
    for field in msgspec.structs.fields(Settings):
        if field.name in DERIVED:
            continue
        text = given.get(f"RUNE_{field.name.upper()}")
        if text is not None:
            values[field.name] = _split_list(text) if field.name in LISTS else text
    statuses = values.get("statuses", "each")
    values["statuses"] = STATUS_SYNONYMS.get(str(statuses).lower(), statuses)
    if "traces" not in values:
        values["traces"] = given.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    try:
        values["retention"] = parse_rules(values.get("retention", []))
    except InvalidRuleError as error:
        raise SettingsError(f"retention: {error.message}") from None
    try:
        settings = msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError:
        raise _type_error(values) from None
    _check_bounds(settings)
    _check_combination(settings)
    return settings


class SettingValue(msgspec.Struct, frozen=True, kw_only=True):
    """A setting in effect. `source` is `default`, `file` or `environment`; the value of a secret is whether it is
    set."""

    name: str
    value: Any
    source: Literal["default", "file", "environment"]
    secret: bool = False


def describe_settings(
    settings: Settings, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> list[SettingValue]:
    """Return the settings in effect and where each comes from, without secrets."""
    given = os.environ if environment is None else environment
    in_file = _load_file((folder or Path()) / "rune.toml")
    found: list[SettingValue] = []
    for field in msgspec.structs.fields(Settings):
        if field.name in DERIVED:
            continue
        value = getattr(settings, field.name)
        source: Literal["default", "file", "environment"] = "default"
        if f"RUNE_{field.name.upper()}" in given:
            source = "environment"
        elif field.name in in_file:
            source = "file"
        secret = field.name in SECRET and (not value or value != field.default)  # a default is no secret
        shown = bool(value) if secret else msgspec.to_builtins(value)
        found.append(SettingValue(name=field.name, value=shown, source=source, secret=secret))
    return found


def _split_list(text: str) -> list[str]:
    """Split a comma-separated list. An empty text is an empty list."""
    return [each.strip() for each in text.split(",")] if text.strip() else []


def _type_error(values: dict[str, Any]) -> SettingsError:
    """Return the error for the first setting that is unknown or has the wrong type."""
    known = {field.name: field.type for field in msgspec.structs.fields(Settings)}
    for name, value in values.items():
        if name not in known:
            return SettingsError(f"rune.toml: unknown setting `{name}`")
        try:
            msgspec.convert(value, known[name], strict=False)
        except msgspec.ValidationError:
            found = "this" if name in SECRET else f"`{value}`"
            expected = _describe_type(known[name])
            return SettingsError(f"RUNE_{name.upper()}, or `{name}` in rune.toml: {found} is not {expected}")
    return SettingsError("configuration: the settings contradict each other")


def _describe_type(kind: Any) -> str:
    """Describe a type in an error message."""
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(f"`{each}`" for each in get_args(kind) if each)
    words = {
        int: "a whole number",
        int | None: "a whole number",
        float: "a number",
        bool: "`true` or `false`",
        str: "text",
    }
    return words.get(kind, "a list of texts")


def _check_heartbeat(interval: float, timeout: float) -> None:
    if not (math.isfinite(interval) and interval > 0):
        raise SettingsError("RUNE_HEARTBEAT: a number of seconds above 0")
    if not (math.isfinite(timeout) and timeout > interval):
        raise SettingsError("RUNE_HEARTBEAT_TIMEOUT: a number of seconds above RUNE_HEARTBEAT")


_OPTIONAL_LIMITS = {
    "max_dead": "a number of messages",
    "max_waiting": "a queue depth",
    "api_failed_logins": "a number of wrong keys",
    "api_body_rate": "a number of bytes per second",
}
"""Limits that 0 removes."""


def _check_bounds(settings: Settings) -> None:
    """Reject numbers that would keep the process from running anything, and malformed addresses."""
    for name in ("slots", "http_per_host", "partitions", "expression_ms"):
        number = getattr(settings, name)
        if number is not None and number < 1:
            raise SettingsError(f"RUNE_{name.upper()}: at least 1")
    for name, expected in _OPTIONAL_LIMITS.items():
        if getattr(settings, name) < 0:
            raise SettingsError(f"RUNE_{name.upper()}: {expected}, or 0 for no limit")
    if not (math.isfinite(settings.api_head_timeout) and settings.api_head_timeout > 0):
        raise SettingsError("RUNE_API_HEAD_TIMEOUT: a number of seconds above 0")
    _check_heartbeat(settings.heartbeat, settings.heartbeat_timeout)
    for name in ("grace", "start_timeout"):
        if not (math.isfinite(getattr(settings, name)) and getattr(settings, name) >= 0):
            raise SettingsError(f"RUNE_{name.upper()}: a number of seconds, 0 or more")
    if settings.traces not in ("", "off") and not settings.traces.startswith(("http://", "https://")):
        raise SettingsError("RUNE_TRACES: `off`, or an address that begins with `http://` or `https://`")
    if not 0.0 <= settings.trace_share <= 1.0:
        raise SettingsError("RUNE_TRACE_SHARE: a share between 0 and 1")
    if not 0 <= settings.health_port < 65_536:
        raise SettingsError("RUNE_HEALTH_PORT: a port, or 0 for none")
    _check_networks(settings.trusted_proxies)
    _check_urls(settings)


def _check_networks(proxies: tuple[str, ...]) -> None:
    for each in proxies:
        try:
            ipaddress.ip_network(each)
        except ValueError as error:
            raise SettingsError(f"RUNE_TRUSTED_PROXIES: {error}") from None


def _check_urls(settings: Settings) -> None:
    if settings.public_url and not settings.public_url.startswith(("http://", "https://")):
        raise SettingsError("RUNE_PUBLIC_URL: an address that begins with `http://` or `https://`")
    if settings.url:
        _check_url(settings.url)


def _check_url(url: str) -> None:
    if not _is_reachable(url):
        raise SettingsError("RUNE_URL: the address of a server is `http://host:port` or `https://host:port`")
    if url.rstrip("/").endswith("/api/v1"):
        raise SettingsError("RUNE_URL: omit `/api/v1`, which the commands add: `http://host:port`")


def _is_reachable(url: str) -> bool:
    """Return whether an address has an HTTP scheme, a host and a valid port."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _is_parsable(url: str) -> bool:
    """Return whether an address can be parsed. PostgreSQL and Redis allow several hosts, each with its port."""
    try:
        parts = urlsplit(url)
        if url.startswith(POSTGRES):
            return True
        several = parts.netloc.rpartition("@")[2].split(",") if url.startswith(REDIS) else ()
        hosts = [urlsplit(f"redis://{each}") for each in several] if len(several) > 1 else [parts]
        return all(each.port is None or each.port > 0 for each in hosts)
    except ValueError:
        return False


def _check_combination(settings: Settings) -> None:
    """Reject a mix of embedded and cluster backends."""
    if not settings.clustered:
        for name in ("state", "queue", "blob"):
            if getattr(settings, name) != "embedded":
                raise SettingsError(
                    f"RUNE_{name.upper()}: with the embedded journal this must be `embedded`;"
                    " a cluster needs RUNE_JOURNAL=postgresql://…"
                )
        return
    if not PREFIX.fullmatch(settings.prefix):
        raise SettingsError("RUNE_PREFIX: letters, digits and . _ - only, at most 64")
    _check_addresses(settings)
    if not settings.blob.startswith(("embedded", "file:///", "s3://")):
        raise SettingsError("RUNE_BLOB: this must be `embedded`, `file:///folder` or `s3://bucket/prefix`")
    if not 1 <= settings.wire_bytes <= 128 * 1024 * 1024:
        raise SettingsError("RUNE_WIRE_BYTES: between 1 and 134217728")
    if not settings.queues or not all(settings.queues):
        raise SettingsError("RUNE_QUEUES: at least one queue, separated by commas")


def _check_addresses(settings: Settings) -> None:
    """Reject unusable addresses of the stores of a cluster."""
    for name in ("journal", "state", "queue"):
        if not _is_parsable(getattr(settings, name)):
            raise SettingsError(f"RUNE_{name.upper()}: invalid address: its host or port cannot be parsed")
    if not settings.state.startswith(REDIS):
        raise SettingsError("RUNE_STATE: with RUNE_JOURNAL=postgresql://… this must be `redis://…`")
    if not settings.queue.startswith((*REDIS, *AMQP)):
        raise SettingsError(
            "RUNE_QUEUE: with RUNE_JOURNAL=postgresql://… this must be `redis://…` or `amqp://…`"
        )
    if not settings.brokered and settings.queue != settings.state:
        raise SettingsError("RUNE_QUEUE: a queue in Redis must use the same server as RUNE_STATE")


def _load_file(path: Path) -> dict[str, Any]:
    try:
        return _flatten(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SettingsError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: byte {error.start} is not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: {error}") from error


def _flatten(values: dict[str, Any]) -> dict[str, Any]:
    """Flatten tables: `wire.inline` is a synonym of `wire_inline`."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat.update(
            {f"{name}_{key}": each for key, each in value.items()}
            if isinstance(value, dict)
            else {name: value}
        )
    return flat
