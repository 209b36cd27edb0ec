"""Opens the blob store that RUNE_BLOB configures."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from rune.adapters.private_files import make_private_folder
from rune.ports.journal import BlobStore
from rune.settings import SettingsError

if TYPE_CHECKING:
    from rune.adapters.blobs.s3 import Bucket
from rune.adapters.blobs.filesystem import FilesystemBlobs
from rune.adapters.blobs.keys import is_fan_out

URL_FORMS = "`file:///folder` or `s3://bucket/prefix?endpoint=https://host&region=…`"
ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
_SCHEME = re.compile(r"[a-z0-9+.-]{1,20}")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}")
_PREFIX = re.compile(r"[A-Za-z0-9_-]+(?:/[A-Za-z0-9_-]+)*")


def open_blob(url: str, environment: Mapping[str, str] | None = None) -> BlobStore:
    """Open a blob store outside the database. A remote service is not contacted before the first blob."""
    scheme, separator, _ = url.partition("://")
    if scheme == "file":
        return _open_files(url)
    if scheme == "s3":
        return _open_s3(url, os.environ if environment is None else environment)
    shown = f"`{scheme}://`" if separator and _SCHEME.fullmatch(scheme) else "this"
    raise SettingsError(f"RUNE_BLOB: {shown} is not a location for blobs; use {URL_FORMS}")


def _open_files(url: str) -> FilesystemBlobs:
    parts = _split(url)
    path = unquote(parts.path)
    if parts.netloc or not path.startswith("/") or parts.query or parts.fragment or "\0" in path:
        raise SettingsError(f"RUNE_BLOB: `{url}` is not a folder; use three slashes: `file:///folder`")
    folder = Path(path)
    try:
        make_private_folder(folder, is_fan_out)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SettingsError(f"RUNE_BLOB: the folder {folder} cannot be used: {reason}") from error
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise SettingsError(f"RUNE_BLOB: the folder {folder} cannot be used: permission denied")
    return FilesystemBlobs(folder)


def _open_s3(url: str, environment: Mapping[str, str]) -> BlobStore:
    try:
        from rune.adapters.blobs.s3 import AccessKeys, S3Blobs  # noqa: PLC0415 - the S3 client is optional
    except ModuleNotFoundError as missing:
        raise SettingsError(
            f"RUNE_BLOB: s3:// needs the package `{missing.name}`; install rune-engine[cluster]"
        ) from None
    bucket = _parse_bucket(url, environment)
    absent = [name for name in (ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE) if not environment.get(name)]
    if absent:
        raise SettingsError(
            f"RUNE_BLOB: s3:// reads its keys from the environment; set {' and '.join(absent)}"
        )
    session = environment.get("AWS_SESSION_TOKEN", "")
    return S3Blobs(
        bucket, AccessKeys(environment[ACCESS_KEY_VARIABLE], environment[SECRET_KEY_VARIABLE], session)
    )


def _parse_bucket(url: str, environment: Mapping[str, str]) -> Bucket:
    from rune.adapters.blobs.s3 import Bucket  # noqa: PLC0415 - as above

    parts = _split(url)
    if "@" in parts.netloc:
        raise SettingsError(
            f"RUNE_BLOB: keys do not belong in the address; set {ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE}"
        )
    prefix = unquote(parts.path).strip("/")
    if not _BUCKET.fullmatch(parts.netloc):
        raise SettingsError(f"RUNE_BLOB: `{parts.netloc[:80]}` is not a bucket name; use {URL_FORMS}")
    if prefix and not _PREFIX.fullmatch(prefix):
        raise SettingsError(
            f"RUNE_BLOB: the prefix `{prefix[:80]}` may contain letters, digits, `-`, `_` and single slashes"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(options.keys() - {"endpoint", "region"})
    if unknown or parts.fragment:
        raise SettingsError(
            f"RUNE_BLOB: `{(unknown or [parts.fragment])[0][:40]}` is unknown; use {URL_FORMS}"
        )
    region = options.get("region") or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    return Bucket(parts.netloc, prefix, _parse_endpoint(options.get("endpoint", "")), region or "us-east-1")


def _parse_endpoint(text: str) -> str:
    if not text:
        return ""
    parts = _split(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise SettingsError("RUNE_BLOB: the endpoint must be `http://host:port` or `https://host`")
    return text.rstrip("/")


def _split(text: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        _ = parts.port  # urlsplit validates the port only when it is read
    except ValueError as error:
        raise SettingsError(f"RUNE_BLOB: not a valid address ({error}); use {URL_FORMS}") from None
    return parts
