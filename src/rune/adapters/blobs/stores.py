"""Opens the blob store that an address names."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from rune.adapters.blobs.filesystem import FilesystemBlobs
from rune.ports.blobs import BlobStore
from rune.settings import SettingsError

if TYPE_CHECKING:
    from rune.adapters.blobs.s3 import Bucket

KNOWN = "`file:///folder` or `s3://bucket/prefix?endpoint=https://host&region=…`"
ID, SECRET = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
_SCHEME = re.compile(r"[a-z0-9+.-]{1,20}")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}")
_PREFIX = re.compile(r"[A-Za-z0-9_-]+(?:/[A-Za-z0-9_-]+)*")


def open_blob(url: str, environment: Mapping[str, str] | None = None) -> BlobStore:
    """Blobs outside of the database. Nothing is asked of a server before the first blob."""
    scheme, known, _ = url.partition("://")
    if scheme == "file":
        return _files(url)
    if scheme == "s3":
        return _s3(url, os.environ if environment is None else environment)
    said = f"`{scheme}://`" if known and _SCHEME.fullmatch(scheme) else "this"
    raise SettingsError(f"RUNE_BLOB: {said} is no place for blobs outside of the database; use {KNOWN}")


def _files(url: str) -> FilesystemBlobs:
    parts = _split(url)
    path = unquote(parts.path)
    if parts.netloc or not path.startswith("/") or parts.query or parts.fragment or "\0" in path:
        raise SettingsError(f"RUNE_BLOB: `{url}` names no folder; three slashes begin it: `file:///folder`")
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        said = error.strerror or str(error)
        raise SettingsError(f"RUNE_BLOB: the folder {folder} cannot be used: {said}") from error
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise SettingsError(f"RUNE_BLOB: the folder {folder} cannot be used: this user may not write there")
    return FilesystemBlobs(folder)


def _s3(url: str, environment: Mapping[str, str]) -> BlobStore:
    try:
        from rune.adapters.blobs.s3 import Keys, S3Blobs  # noqa: PLC0415 - files need no client of S3
    except ModuleNotFoundError as missing:
        raise SettingsError(
            f"RUNE_BLOB: s3:// needs the package `{missing.name}`; install rune-engine[cluster]"
        ) from None
    bucket = _bucket(url, environment)
    absent = [name for name in (ID, SECRET) if not environment.get(name)]
    if absent:
        raise SettingsError(
            f"RUNE_BLOB: s3:// takes its keys from the environment; set {' and '.join(absent)}"
        )
    session = environment.get("AWS_SESSION_TOKEN", "")
    return S3Blobs(bucket, Keys(environment[ID], environment[SECRET], session))


def _bucket(url: str, environment: Mapping[str, str]) -> Bucket:
    from rune.adapters.blobs.s3 import Bucket  # noqa: PLC0415 - as above

    parts = _split(url)
    if "@" in parts.netloc:
        raise SettingsError(f"RUNE_BLOB: keys do not belong in the address; set {ID} and {SECRET}")
    prefix = unquote(parts.path).strip("/")
    if not _BUCKET.fullmatch(parts.netloc):
        raise SettingsError(f"RUNE_BLOB: `{parts.netloc[:80]}` is no name of a bucket; use {KNOWN}")
    if prefix and not _PREFIX.fullmatch(prefix):
        raise SettingsError(
            f"RUNE_BLOB: the prefix `{prefix[:80]}` may hold letters, digits, `-`, `_` and single slashes"
        )
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(given.keys() - {"endpoint", "region"})
    if unknown or parts.fragment:
        raise SettingsError(f"RUNE_BLOB: `{(unknown or [parts.fragment])[0][:40]}` is unknown; use {KNOWN}")
    region = given.get("region") or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    return Bucket(parts.netloc, prefix, _endpoint(given.get("endpoint", "")), region or "us-east-1")


def _endpoint(text: str) -> str:
    if not text:
        return ""
    parts = _split(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise SettingsError("RUNE_BLOB: the endpoint has to be `http://host:port` or `https://host`")
    return text.rstrip("/")


def _split(text: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        _ = parts.port  # only looked at when it is asked for
    except ValueError as error:
        raise SettingsError(f"RUNE_BLOB: this is no address ({error}); use {KNOWN}") from None
    return parts
